"""The endpoints, by what they are about. Each takes its arguments apart and leaves the work to a module above."""
