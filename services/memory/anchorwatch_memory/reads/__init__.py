"""Questions to the projections. Each is a function of a connection and its parameters, and reads one snapshot."""
