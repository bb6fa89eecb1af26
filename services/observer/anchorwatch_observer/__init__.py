"""The observer: routes what happens outside to the sessions that care."""
