"""Only a message that is newer than the connection and the consumer counts as delivered for the first time."""

from __future__ import annotations

import asyncio

from anchorwatch.bus.port import ConsumerSpec, Message
from anchorwatch.executor.message import RedeliveryGuard
from anchorwatch.service.intake import Intake
from anchorwatch.testing.bus import SimServer
from anchorwatch.testing.bus.loop import run
from anchorwatch.topology.streams import StreamSpec


def test_older_messages_never_count_as_first_deliveries() -> None:
    async def body() -> None:
        server = SimServer()
        server.ensure_stream(StreamSpec("S", ("s.>",)))
        bus = server.connect(name="executor")
        intake = Intake(bus, ConsumerSpec("S", ("s.>",), "c"), asyncio.Event())
        await bus.publish(Message("s.x", b"1"))
        await intake.open()
        guard = RedeliveryGuard(bus, "S", intake)
        await guard.mark()
        await bus.publish(Message("s.x", b"2"))
        assert [await guard.attempt(n, 1) for n in (1, 2)] == [2, 1]
        assert await guard.attempt(2, 5) == 5
        server.stop()
        server.start()
        await bus.publish(Message("s.x", b"3"))
        assert await guard.attempt(2, 1) == 2
        await bus.publish(Message("s.x", b"4"))
        assert await guard.attempt(4, 1) == 1
        await intake.close()
        await intake.open()
        assert await guard.attempt(4, 1) == 2
        await intake.close()
        await bus.close()

    run(body())
