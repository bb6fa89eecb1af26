"""Executors that die, pause, lose acks and races: no effect is repeated or guessed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from anchorwatch.bus.port import Bus
from anchorwatch.core.effect.state import Claimed, Outcome, Owner
from anchorwatch.core.records import Kind
from anchorwatch.executor.message import pool_consumer

from tests.integration.executor.conftest import Executors, scripted
from tests.support.nats_server import NatsServer
from tests.support.packs import Sink
from tests.support.sessions import ScriptedSession
from tests.support.waiting import eventually

DEAD = Owner("executor-9", "gone")
KEY = "aw-key"


@pytest.mark.parametrize(
    ("tool", "honours_keys", "was_done", "state", "effects"),
    [
        # That its provider honours keys is what such a tool promises, so there is no case without.
        ("set", True, False, "succeeded", 1),
        ("set", True, True, "succeeded", 1),
        ("build", True, False, "succeeded", 1),
        ("build", True, True, "succeeded", 1),
        ("build", False, False, "succeeded", 1),
        ("build", False, True, "succeeded", 1),
        ("fire", True, False, "unknown", 0),
        ("fire", True, True, "unknown", 1),
        ("fire", False, False, "unknown", 0),
        ("fire", False, True, "unknown", 1),
    ],
)
async def test_dead_executors_claim_is_settled_by_effect_class(
    executors: Executors,
    bus: Bus,
    tmp_path: Path,
    sink: Sink,
    tool: str,
    state: str,
    effects: int,
    *,
    was_done: bool,
    honours_keys: bool,
) -> None:
    session = await scripted(bus, tmp_path / "world", honour=honours_keys)
    command = await session.command(tool)
    await session.record(command, Claimed(DEAD, 1, KEY))
    if was_done:
        sink.do(tool, "x", KEY, honour=honours_keys)
    executors.peers.dead.add(DEAD.instance)
    await executors.start()
    done = await session.outcome(command)
    assert done.state == state
    assert len(sink.effects()) == effects
    assert {effect["key"] for effect in sink.effects()} <= {KEY}


async def test_effect_is_unknown_if_the_provider_cannot_tell(
    executors: Executors, bus: Bus, tmp_path: Path, sink: Sink
) -> None:
    session = await scripted(bus, tmp_path / "world", answers="unknown")
    command = await session.command("build")
    await session.record(command, Claimed(DEAD, 1, KEY))
    executors.peers.dead.add(DEAD.instance)
    await executors.start()
    assert (await session.outcome(command)).state == "unknown"
    assert sink.effects() == []


async def test_second_executor_waits_for_a_live_owner(
    executors: Executors, session: ScriptedSession, sink: Sink
) -> None:
    command, other = await session.commands(("set", {"item": "x"}), ("look", {"item": "x"}))
    await session.record(command, Claimed(DEAD, 1, KEY))
    await executors.start()
    await session.outcome(other)
    assert await session.records(command) == [Kind.CLAIM]
    executors.peers.dead.add(DEAD.instance)
    assert (await session.outcome(command)).state == "succeeded"
    assert len(sink.effects()) == 1


@pytest.mark.parametrize("was_done", [True, False])
async def test_silent_owners_effect_is_not_repeated(
    executors: Executors, bus: Bus, tmp_path: Path, sink: Sink, *, was_done: bool
) -> None:
    """A stopped executor may go on, and send what the provider has not seen so far."""
    session = await scripted(bus, tmp_path / "world", honour=False)
    command = await session.command("build")
    await session.record(command, Claimed(DEAD, 1, KEY))
    if was_done:
        sink.do("build", "x", KEY, honour=False)
    executors.peers.gone.add(DEAD.instance)
    await executors.start()
    done = await session.outcome(command)
    assert done.state == ("succeeded" if was_done else "unknown")
    assert len(sink.effects()) == int(was_done)


async def test_restarted_instance_resumes_its_claims_at_once(
    executors: Executors, session: ScriptedSession, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So long that whatever is done within this test was done without a redelivery.
    monkeypatch.setattr("anchorwatch.executor.message.ACK_WAIT_S", 600.0)
    await executors.start()
    command = await session.command("build", "hang")

    async def done_outside() -> bool:
        return bool(sink.effects())

    await eventually(done_outside)
    await executors.kill()
    await executors.start()
    done = await session.outcome(command, within_s=60)
    assert (done.state, done.text) == ("succeeded", "reconciled")
    assert len(sink.effects()) == 1


async def test_death_in_an_irreversible_call_leaves_it_unknown(
    executors: Executors, session: ScriptedSession, sink: Sink
) -> None:
    await executors.start()
    command = await session.command("fire", "hang")

    async def done_outside() -> bool:
        return bool(sink.effects())

    await eventually(done_outside)
    await executors.kill()
    await executors.start()
    assert (await session.outcome(command)).state == "unknown"
    assert len(sink.effects()) == 1


async def test_lost_ack_causes_only_one_more_delivery(
    executors: Executors, session: ScriptedSession, bus: Bus, sink: Sink
) -> None:
    await executors.start()
    command = await session.command("fire")
    await session.outcome(command)
    await executors.kill()
    # The same message again, as if its ack had been lost.
    await bus.delete_consumer("JOURNAL_0", "executor-default")
    await executors.start()
    consumer = await bus.consumer(pool_consumer("default"))

    async def all_acked() -> bool:
        state = await consumer.state()
        return state.ack_floor_sequence >= command.sequence and state.ack_pending == 0

    await eventually(all_acked)
    assert len(sink.effects()) == 1
    assert await session.records(command) == [Kind.CLAIM, Kind.OUTCOME]


async def test_later_outcome_is_kept_as_evidence(
    executors: Executors, session: ScriptedSession, sink: Sink
) -> None:
    await executors.start()
    command = await session.command("build", "hang")

    async def claimed() -> bool:
        return bool(await session.records(command)) and bool(sink.effects())

    await eventually(claimed)
    settled = Outcome(command.call, "build", "resolved", "a person says it is done", {}, by="ada")
    await session.record(command, settled)

    async def late() -> bool:
        return bool(await session.last("late.>"))

    await eventually(late)
    body = (await session.last("late.>"))[0].body
    assert (body["tool"], body["state"], body["owner"][0]) == ("build", "succeeded", "executor-1")
    assert (await session.outcome(command)).state == "resolved"


async def test_two_executors_run_each_shared_command_once(
    executors: Executors, session: ScriptedSession, bus: Bus, sink: Sink
) -> None:
    commands = await session.commands(*[("fire", {"item": f"i{n}"}) for n in range(16)])
    # Both begin with everything that was ever handed out and not acked: the same sixteen.
    consumer = await bus.consumer(pool_consumer("default"))
    assert len(await consumer.fetch(16, 2.0)) == 16
    await consumer.close()
    await asyncio.gather(executors.start("executor-1"), executors.start("executor-2"))
    assert {(await session.outcome(each)).state for each in commands} == {"succeeded"}
    assert sorted(effect["item"] for effect in sink.effects()) == sorted(f"i{n}" for n in range(16))


async def test_outcome_survives_a_server_restart(
    executors: Executors, session: ScriptedSession, server: NatsServer, sink: Sink
) -> None:
    await executors.start()
    command = await session.command("build", "hang")

    async def done_outside() -> bool:
        return bool(sink.effects())

    await eventually(done_outside)
    server.restart()
    done = await session.outcome(command, within_s=60)
    assert done.state == "succeeded"
    assert len(sink.effects()) == 1
