"""The pure core: records, the anchor, the session machine, the effect machine, policy and errors. No clock, no chance, no I/O."""
