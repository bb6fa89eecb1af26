"""One command at a time uses a resource, and none while the outcome of one is unknown."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from anchorwatch.bus.port import Bus
from anchorwatch.core.effect.state import Claimed, Outcome, Owner
from anchorwatch.core.records import Kind
from anchorwatch.journal.blocks import BlockJournal, Entry, Resource, read_block
from anchorwatch.journal.commit import Committer
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.topology.streams import journal_stream

from tests.integration.executor.conftest import WS, Executors
from tests.support.packs import Sink, bench_agent, load
from tests.support.sessions import Decided, ScriptedSession, now_ms

DEAD = Owner("executor-9", "gone")


def resolved(decided: Decided) -> Outcome:
    return Outcome(decided.call, "fire", "resolved", "a person found out", {}, by="ada")


async def another(bus: Bus, name: str = "other") -> ScriptedSession:
    """A session of the same agent, with a turn that runs."""
    made = ScriptedSession(bus, name)
    await made.create()
    await made.acquire()
    return made


async def left_unknown(executors: Executors, session: ScriptedSession) -> Decided:
    """A command whose answer was lost."""
    await executors.start()
    command = await session.command("fire", "lost")
    assert (await session.outcome(command)).state == "unknown"
    return command


async def index(bus: Bus, name: str = "fire/x") -> list[str]:
    page = await bus.last(journal_stream(), [Resource(WS, "bench", name).subject])
    return [str(each) for stored in page.messages for each in read_block(stored).entries]


async def test_calls_on_one_resource_run_in_order(
    executors: Executors, session: ScriptedSession, sink: Sink
) -> None:
    calls = [("fire", {"item": "x", "count": n}) for n in range(1, 5)]
    commands = await session.commands(*calls)
    await executors.start()
    assert {(await session.outcome(each)).state for each in commands} == {"succeeded"}
    states = [await session.effect(each) for each in commands]
    for earlier, later in pairwise(states):
        assert earlier.outcome_sequence < later.first_claim
    assert len(sink.effects("x")) == 4


async def test_waiting_command_delays_no_other_and_writes_nothing(
    executors: Executors, session: ScriptedSession, sink: Sink
) -> None:
    first, second, other = await session.commands(
        ("set", {"item": "x"}), ("set", {"item": "x"}), ("set", {"item": "y"})
    )
    await session.record(first, Claimed(DEAD, 1, "key"))
    await executors.start()
    assert (await session.outcome(other)).state == "succeeded"
    assert await session.records(second) == []
    executors.peers.dead.add(DEAD.instance)
    assert (await session.outcome(second)).state == "succeeded"
    assert await session.records(second) == [Kind.CLAIM, Kind.OUTCOME]
    assert next(effect["key"] for effect in sink.effects("x")) == "key"


async def test_unknown_effect_blocks_only_its_resource(
    executors: Executors, session: ScriptedSession, sink: Sink
) -> None:
    unknown = await left_unknown(executors, session)
    blocked, free, look = await session.commands(
        ("fire", {"item": "x"}), ("fire", {"item": "y"}), ("look", {"item": "x"})
    )
    done = await session.outcome(blocked)
    assert (done.state, done.rule) == ("refused", "resource_blocked")
    assert f"fleet/{unknown.call}" in done.text
    assert await session.records(blocked) == [Kind.OUTCOME]
    assert (await session.outcome(free)).state == "succeeded"
    assert (await session.outcome(look)).state == "succeeded"
    assert len(sink.effects("x")) == 1


async def test_block_lasts_until_a_person_resolves_the_effect(
    executors: Executors, session: ScriptedSession
) -> None:
    unknown = await left_unknown(executors, session)
    await session.end("unresolved")
    await session.acquire("turn_2")
    assert (await session.outcome(await session.command("fire"))).rule == "resource_blocked"
    await session.record(unknown, resolved(unknown))
    assert (await session.outcome(await session.command("fire"))).state == "succeeded"


async def test_effect_of_an_earlier_turn_is_settled_first(
    executors: Executors, session: ScriptedSession, sink: Sink
) -> None:
    """The earlier turn was cancelled while its executor was at work: it may have done it, or do it yet."""
    began = await session.command("fire")
    await session.record(began, Claimed(DEAD, 1, "key"))
    await session.control(Kind.CANCELLED)
    await session.acquire("turn_2")
    later, other = await session.commands(("fire", {"item": "x", "count": 2}), ("fire", {"item": "y"}))
    await executors.start()
    await session.outcome(other)
    assert await session.records(later) == []
    executors.peers.dead.add(DEAD.instance)
    assert (await session.outcome(began)).state == "unknown"
    done = await session.outcome(later)
    assert (done.state, done.rule) == ("refused", "resource_blocked")
    assert sink.effects("x") == []


async def test_block_covers_other_sessions_of_the_pack(
    executors: Executors, session: ScriptedSession, bus: Bus, sink: Sink
) -> None:
    unknown = await left_unknown(executors, session)
    other = await another(bus)
    blocked = await other.command("fire")
    done = await other.outcome(blocked)
    assert (done.state, done.rule) == ("refused", "resource_blocked")
    assert f"fleet/{unknown.call}" in done.text
    assert await other.records(blocked) == [Kind.CLAIM, Kind.OUTCOME]
    assert (await other.outcome(await other.command("look"))).state == "succeeded"
    assert (await other.outcome(await other.command("fire", item="y"))).state == "succeeded"
    await session.record(unknown, resolved(unknown))
    assert (await other.outcome(await other.command("fire"))).state == "succeeded"
    assert len(sink.effects("x")) == 2


async def test_block_is_indexed_before_the_unknown_outcome(
    executors: Executors, session: ScriptedSession, bus: Bus
) -> None:
    unknown = await left_unknown(executors, session)
    page = await bus.last(journal_stream(), [Resource(WS, "bench", "fire/x").subject])
    assert [str(each) for each in read_block(page.messages[0]).entries] == [f"fleet/{unknown.call}"]
    assert page.messages[0].sequence < (await session.effect(unknown)).outcome_sequence


async def test_entry_with_an_outcome_blocks_nothing_and_is_removed(
    executors: Executors, session: ScriptedSession, bus: Bus
) -> None:
    """Its executor died between the index and the record, and another one found that it was done."""
    await executors.start()
    command = await session.command("fire")
    await session.outcome(command)
    blocks = BlockJournal(bus, Committer(bus, journal_stream()), "executor-9:gone")
    entry = Entry(session.ref.session, command.call, command.pool)
    await blocks.enter(Resource(WS, "bench", "fire/x"), entry, now_ms())
    other = await another(bus)
    assert (await other.outcome(await other.command("fire"))).state == "succeeded"

    assert str(entry) not in await index(bus)


async def test_each_session_that_blocks_a_resource_must_be_resolved(
    executors: Executors, session: ScriptedSession, bus: Bus
) -> None:
    """They were at work at the same time, so neither could see the other's."""
    other = await another(bus)
    mine, theirs = await session.command("fire"), await other.command("fire")
    for each, where in ((mine, session), (theirs, other)):
        await where.record(each, Claimed(DEAD, 1, "key"))
    executors.peers.dead.add(DEAD.instance)
    await executors.start()
    for each, where in ((mine, session), (theirs, other)):
        assert (await where.outcome(each)).state == "unknown"
    assert sorted(await index(bus)) == [f"fleet/{mine.call}", f"other/{theirs.call}"]
    third = await another(bus, "third")
    await session.record(mine, resolved(mine))
    assert (await third.outcome(await third.command("fire"))).rule == "resource_blocked"
    await other.record(theirs, resolved(theirs))
    assert (await third.outcome(await third.command("fire"))).state == "succeeded"


@pytest.mark.parametrize("tool", ["set", "build"])
async def test_claim_after_a_block_is_refused_after_a_death(
    executors: Executors, session: ScriptedSession, bus: Bus, tool: str
) -> None:
    """It had seen the block, or died before it looked: it has certainly not run."""
    command = await session.command(tool)
    blocks = BlockJournal(bus, Committer(bus, journal_stream()), "executor-9:gone")
    other = await another(bus)
    unknown = await other.command(tool)
    await blocks.enter(Resource(WS, "bench", f"{tool}/x"), Entry("other", unknown.call, "default"), now_ms())
    lost = Outcome(unknown.call, tool, "unknown", "its answer was lost", {}, resource=f"{tool}/x")
    await other.record(unknown, Claimed(DEAD, 1, "theirs"), lost)
    await session.record(command, Claimed(DEAD, 1, "mine"))
    executors.peers.dead.add(DEAD.instance)
    await executors.start()
    assert (await session.outcome(command)).rule == "resource_blocked"


async def test_equal_resource_name_elsewhere_is_not_blocked(
    executors: Executors, session: ScriptedSession, bus: Bus, tmp_path: Path
) -> None:
    """Neither another workspace's nor another pack's."""
    await left_unknown(executors, session)
    agents = await AgentDirectory.open(bus, load)
    await agents.apply("elsewhere", bench_agent(tmp_path / "elsewhere"))
    far = ScriptedSession(bus, "fleet", "elsewhere")
    await far.create()
    await far.acquire()
    assert (await far.outcome(await far.command("fire"))).state == "succeeded"
    mine = Resource(WS, "bench", "fire/x")
    assert (
        len({mine.subject, Resource(WS, "other", "fire/x").subject, Resource(WS, "bench", "fire/y").subject})
        == 3
    )
