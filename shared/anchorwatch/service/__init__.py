"""What every service process has: a context (bus, settings, clock, identity), presence, and a clean end."""
