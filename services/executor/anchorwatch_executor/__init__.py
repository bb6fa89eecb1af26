"""The executor: runs decided commands, each effect at most once."""
