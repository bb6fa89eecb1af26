"""The pure core: records, anchor, session machine, effect machine, policy, errors. No clock, no randomness, no I/O."""
