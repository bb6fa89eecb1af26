"""The message bus: the contract (`port`) and NATS JetStream (`jetstream`). `anchorwatch.testing.bus` simulates it."""
