"""The memory: keeps what can be rebuilt from the journal, and what outlives a run."""
