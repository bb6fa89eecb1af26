"""The tests: sentences about what the product does, in families by what they need."""
