"""The command line ``anchorwatch``."""
