"""Anchor Watch: autonomous agents on real systems, made safe to leave alone."""

__version__ = "0.1.0"
