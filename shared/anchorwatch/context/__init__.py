"""Renders the model's request from the session's state, within its budget. Pure."""
