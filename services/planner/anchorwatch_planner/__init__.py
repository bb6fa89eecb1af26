"""The planner: turns inputs into turns, and turns into decided commands."""
