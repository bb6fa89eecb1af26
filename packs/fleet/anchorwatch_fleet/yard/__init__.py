"""The yard: a cloud provider in small. It owns worker processes, honours effect keys, and remembers what it did."""
