"""After a lost ack, the same process receives a command again: its outcome remains, and it is not run again."""

from __future__ import annotations

import pytest
from anchorwatch.bus.jetstream.consumers import JetStreamDelivery
from anchorwatch.bus.port import Bus
from anchorwatch.core.records import Kind
from anchorwatch.topology.streams import journal_stream

from tests.integration.executor.conftest import Executors
from tests.support.packs import Sink
from tests.support.sessions import ScriptedSession
from tests.support.waiting import eventually


@pytest.mark.parametrize("tool", ["fire", "set", "build"])
async def test_command_whose_ack_is_lost_is_not_run_again(
    executors: Executors,
    session: ScriptedSession,
    sink: Sink,
    bus: Bus,
    monkeypatch: pytest.MonkeyPatch,
    tool: str,
) -> None:
    lost: list[int] = []
    ack = JetStreamDelivery.ack

    async def lose_the_first(delivery: JetStreamDelivery) -> None:
        if lost:
            await ack(delivery)
        else:
            lost.append(delivery.stored.sequence)

    monkeypatch.setattr(JetStreamDelivery, "ack", lose_the_first)
    await executors.start()
    command = await session.command(tool, item="x")
    await session.outcome(command)

    async def acked() -> bool:
        states = await bus.consumer_states(journal_stream())
        return states["executor-default"].ack_floor_sequence >= command.sequence

    await eventually(acked, what="the redelivered command is acked")
    assert lost == [command.sequence]
    assert await session.records(command) == [Kind.CLAIM, Kind.OUTCOME]
    assert len(sink.effects()) == 1
