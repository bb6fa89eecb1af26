"""What a model is shown: the request, from the session's state, within its budget. Pure."""
