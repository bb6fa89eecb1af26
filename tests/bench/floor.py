"""The floor: the same hops between the same processes, by hand with nats-py, and nothing but messages."""

from __future__ import annotations

from collections.abc import Sequence

from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig

from tests.bench.nats_scene import NatsScene
from tests.bench.processes import Process
from tests.bench.scene import payload_text

# Who takes what and publishes what: as many stored messages as there are hops between the mesh's processes.
STEPS = {
    "observer": ("event:in",),
    "planner": ("in:cmd", "done:end"),
    "executor": ("cmd:done",),
    "notifier": ("end:notify",),
}


class Floor(NatsScene):
    """A pipeline of four workers over one stream."""

    name = "floor"

    async def prepare(self) -> None:
        await self.js.add_stream(StreamConfig(name="FLOOR", subjects=["floor.>"]))
        for step in (step for steps in STEPS.values() for step in steps):
            from_ = step.partition(":")[0]
            consumer = ConsumerConfig(
                durable_name=f"floor-{from_}",
                filter_subject=f"floor.{from_}.>",
                ack_policy=AckPolicy.EXPLICIT,
                max_ack_pending=1_000,
            )
            await self.js.add_consumer("FLOOR", consumer)

    def workers(self) -> Sequence[Process]:
        shared = (self.server.url, str(self.sink.path), str(self.receiver.path))
        return [
            Process(name, ("tests.bench.floor_stage", name, *shared, *steps), {}, self.directory)
            for name, steps in STEPS.items()
        ]

    def event(self, session: str, turn: int) -> tuple[str, bytes]:
        return f"floor.event.{session}.{turn}", payload_text().encode()
