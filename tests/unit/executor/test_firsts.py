"""What a server counts as a first delivery is one only of what is newer than the connection and the consumer."""

from __future__ import annotations

import asyncio

from anchorwatch.bus.port import ConsumerSpec, Message
from anchorwatch.execution.firsts import Firsts
from anchorwatch.service.intake import Intake
from anchorwatch.testing.bus import SimServer
from anchorwatch.testing.bus.loop import run
from anchorwatch.topology.streams import StreamSpec


def test_what_is_older_than_the_connection_or_the_consumer_may_have_been_delivered_before() -> None:
    async def body() -> None:
        server = SimServer()
        server.ensure_stream(StreamSpec("S", ("s.>",)))
        bus = server.connect(name="executor")
        intake = Intake(bus, ConsumerSpec("S", ("s.>",), "c"), asyncio.Event())
        await bus.publish(Message("s.x", b"1"))
        await intake.open()
        firsts = Firsts(bus, "S", intake)
        await firsts.look()
        await bus.publish(Message("s.x", b"2"))
        assert [await firsts.attempt(n, 1) for n in (1, 2)] == [2, 1]
        assert await firsts.attempt(2, 5) == 5
        server.stop()
        server.start()
        await bus.publish(Message("s.x", b"3"))
        assert await firsts.attempt(2, 1) == 2
        await bus.publish(Message("s.x", b"4"))
        assert await firsts.attempt(4, 1) == 1
        await intake.close()
        await intake.open()
        assert await firsts.attempt(4, 1) == 2
        await intake.close()
        await bus.close()

    run(body())
