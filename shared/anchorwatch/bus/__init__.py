"""The message bus: the contract (`port`), NATS JetStream (`jetstream`), and an in-memory twin with seeded faults (`sim`)."""
