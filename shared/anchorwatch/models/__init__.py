"""Models: what the planner asks (`port`), and who answers: the pack's `rules`, or an `openai`-compatible endpoint."""
