"""The bus on NATS JetStream. The only place that imports nats."""

from anchorwatch.bus.jetstream.bus import JetStreamBus, connect

__all__ = ["JetStreamBus", "connect"]
