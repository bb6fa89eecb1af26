"""The notifier: tells people what the journal says they should know."""
