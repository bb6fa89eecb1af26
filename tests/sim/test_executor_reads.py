"""What an executor reads may be old, and what it holds may have gone to another: it acts on neither, and lets go of nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from anchorwatch import edges
from anchorwatch.core.effect.state import Claimed, GateAsked, GateDecided, Owner
from anchorwatch.core.records import Kind
from anchorwatch.edges import Edge
from anchorwatch.service.provisioning import ensure_topology
from anchorwatch.testing.bus import FaultKind, Faults, SimServer
from anchorwatch.testing.bus.loop import run as run_virtual
from anchorwatch.topology.streams import journal_stream

from tests.integration.executor.conftest import Executors, scripted
from tests.support.packs import Sink
from tests.support.sessions import ScriptedSession
from tests.support.waiting import eventually

OTHER = Owner("executor-2", "x")
Body = Callable[[SimServer, Executors, ScriptedSession, Sink], Coroutine[Any, Any, None]]


class Always(random.Random):
    """Whatever can go wrong does, and as far as it may."""

    def random(self) -> float:
        return 0.0

    def randint(self, a: int, b: int) -> int:
        del a
        return b


def executor_test(world: Path, body: Body, *, behind: int = 1) -> None:
    """``behind``: how many records a stale read lags."""

    async def main() -> None:
        faults = Faults(Always(), stale_sequences_max=behind)
        server = SimServer(faults=faults)
        bus = server.connect(name="executors")
        await ensure_topology(bus)
        executors = Executors(bus)
        try:
            await body(server, executors, await scripted(bus, world, honour=False), Sink(world))
        finally:
            faults.enabled = False
            await executors.stop()

    run_virtual(main())


def test_lost_ack_and_stale_read_of_the_outcome_repeat_nothing(tmp_path: Path) -> None:
    async def body(server: SimServer, executors: Executors, session: ScriptedSession, sink: Sink) -> None:
        server.faults.rates[FaultKind.LOST_DELIVERY_ACK] = 1.0
        await executors.start()
        command = await session.command("fire")
        assert (await session.outcome(command)).state == "succeeded"
        strikes = server.faults.counts
        server.faults.rates[FaultKind.STALE_READ] = 1.0

        async def read_old() -> bool:
            return strikes.get(FaultKind.STALE_READ, 0) >= 3

        await eventually(read_old)
        server.faults.rates.clear()

        async def answered() -> bool:
            return strikes[FaultKind.LOST_DELIVERY_ACK] > 0 and not (await ack_pending(executors))

        await eventually(answered)
        assert len(sink.effects()) == 1
        assert (await session.records(command)) == ["claim", "outcome"]

    executor_test(tmp_path, body)


def test_command_given_to_an_executor_that_dies_is_redelivered(tmp_path: Path) -> None:
    async def body(_: SimServer, executors: Executors, session: ScriptedSession, sink: Sink) -> None:
        await executors.start()
        command = await session.command("set", "hang")

        async def begun() -> bool:
            return bool(sink.effects())

        await eventually(begun)
        await session.record(command, Claimed(OTHER, 2, "key", doubt=True))

        async def late() -> bool:
            return bool(await session.last("late.>"))

        await eventually(late)
        executors.peers.dead.add(OTHER.instance)
        assert (await session.outcome(command)).state == "unknown"

    executor_test(tmp_path, body)


def test_gate_answer_is_not_lost_to_a_read_from_before_it(tmp_path: Path) -> None:
    async def body(server: SimServer, executors: Executors, session: ScriptedSession, sink: Sink) -> None:
        command = await session.command("fire")
        await session.record(command, GateAsked("people", "b", 2**62, command.sequence))
        await executors.start()
        await session.record(command, GateDecided(approved=True, binding="b", by="ada"))
        server.faults.rates[FaultKind.STALE_READ] = 1.0

        async def read_old() -> bool:
            return server.faults.counts.get(FaultKind.STALE_READ, 0) >= 3

        await eventually(read_old)
        server.faults.rates.clear()
        assert (await session.outcome(command)).state == "succeeded"
        assert len(sink.effects()) == 1

    executor_test(tmp_path, body)


def test_fence_hidden_by_a_stale_read_is_seen_before_any_effect(tmp_path: Path) -> None:
    async def body(server: SimServer, executors: Executors, session: ScriptedSession, sink: Sink) -> None:
        def read_old_after_the_claim(edge: Edge) -> None:
            if edge is Edge.EXECUTOR_CLAIM_AFTER:
                server.faults.rates = {FaultKind.STALE_READ: 1.0}

        await executors.start()
        # It is new to the executor and is delivered after the cancel, which only the read under the claim has to show.
        server.faults.rates[FaultKind.DELAYED_DELIVERY] = 1.0
        command = await session.command("fire")
        await session.control(Kind.CANCELLED)
        edges.install(read_old_after_the_claim)

        async def read_old() -> bool:
            return server.faults.counts.get(FaultKind.STALE_READ, 0) >= 3

        await eventually(read_old)
        edges.install(None)
        server.faults.rates.clear()
        assert (await session.outcome(command)).rule == "fence"
        assert sink.effects() == []

    # The claim follows the fence and the entry in the register, so a read that lags by three shows none of them.
    executor_test(tmp_path, body, behind=3)


async def ack_pending(executors: Executors) -> int:
    [state] = [
        state
        for name, state in (await executors.bus.consumer_states(journal_stream())).items()
        if name == "executor-default"
    ]
    return state.ack_pending
