"""The parts of every service process: context (bus, settings, clock, identity), presence, worker engine, and a clean stop."""
