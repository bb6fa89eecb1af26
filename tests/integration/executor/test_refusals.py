"""The commands that the executor refuses, each with its rule, and the effect of a fence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from anchorwatch.bus.port import Bus, Message
from anchorwatch.core.effect.state import Claimed, GateAsked, GateDecided, Owner
from anchorwatch.core.facts import Observation
from anchorwatch.core.records import Kind
from anchorwatch.journal.commit import Committer
from anchorwatch.journal.orders import Asked
from anchorwatch.journal.switches import Switch, SwitchJournal
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.service.observations import encode_answer
from anchorwatch.topology.streams import journal_stream
from anchorwatch.topology.subjects import RPC_OBSERVE, SessionSubjects

from tests.integration.executor.conftest import WS, Executors
from tests.support.packs import Sink, bench_agent, load
from tests.support.sessions import ScriptedSession, now_ms
from tests.support.waiting import eventually

DEAD = Owner("executor-9", "gone")


async def see(bus: Bus, **facts: bool | None) -> None:
    """Answer as the observer would."""

    async def observed(_subject: str, _payload: bytes) -> bytes:
        return encode_answer(Observation("seen", facts, now_ms(), "d2"))

    await bus.subscribe(RPC_OBSERVE.filter(), observed, queue="observer")


@pytest.mark.parametrize(
    ("tool", "args", "more", "rule"),
    [
        ("explode", {"item": "x"}, {}, "unknown_tool"),
        ("fire", {}, {}, "schema"),
        ("fire", {"item": 7}, {}, "schema"),
        ("fire", {"item": "x", "other": 1}, {}, "schema"),
        ("fire", {"item": "x", "count": 0}, {}, "schema"),
        ("fire", {"item": "x"}, {"digest": ""}, "observation_age"),
        ("fire", {"item": "x"}, {"seen_ms": 1}, "observation_age"),
    ],
)
async def test_refusal_is_an_outcome_that_names_its_rule(
    executors: Executors,
    session: ScriptedSession,
    sink: Sink,
    tool: str,
    args: dict[str, Any],
    more: dict[str, Any],
    rule: str,
) -> None:
    await executors.start()
    command = (await session.commands((tool, args), **more))[0]
    done = await session.outcome(command)
    assert (done.state, done.rule) == ("refused", rule)
    assert done.text
    assert await session.records(command) == [Kind.OUTCOME]
    assert sink.effects() == []


async def test_read_needs_no_fresh_observation(executors: Executors, session: ScriptedSession) -> None:
    await executors.start()
    assert (await session.outcome(await session.command("look", digest=""))).state == "succeeded"


async def test_tool_that_is_not_granted_is_refused(
    executors: Executors, bus: Bus, tmp_path: Path, sink: Sink
) -> None:
    agents = await AgentDirectory.open(bus, load)
    await agents.apply(WS, bench_agent(tmp_path / "world", grants=("look",)))
    session = ScriptedSession(bus)
    await session.create()
    await session.acquire()
    await executors.start()
    done = await session.outcome(await session.command("fire"))
    assert (done.state, done.rule) == ("refused", "grant")
    assert sink.effects() == []


async def test_command_keeps_its_agent_version(
    executors: Executors, session: ScriptedSession, bus: Bus, tmp_path: Path
) -> None:
    agents = await AgentDirectory.open(bus, load)
    await agents.apply(WS, bench_agent(tmp_path / "world", grants=("look",)))
    await executors.start()
    assert (await session.outcome(await session.command("fire"))).state == "succeeded"


@pytest.mark.parametrize(
    ("facts", "state"),
    [({"ready": True}, "succeeded"), ({"ready": False}, "refused"), ({"ready": None}, "refused")],
)
async def test_invariant_is_checked_on_a_fresh_observation(
    executors: Executors, session: ScriptedSession, bus: Bus, facts: dict[str, bool | None], state: str
) -> None:
    await see(bus, **facts)
    await executors.start()
    done = await session.outcome(await session.command("guarded"))
    assert (done.state, done.rule) == (state, "only-when-ready" if state == "refused" else "")


async def test_command_is_refused_without_an_observer(
    executors: Executors, session: ScriptedSession, sink: Sink
) -> None:
    await executors.start()
    done = await session.outcome(await session.command("guarded"))
    assert (done.state, done.rule) == ("refused", "only-when-ready")
    assert "ready unknown" in done.text
    assert sink.effects() == []


# --- the fence


async def test_command_of_a_finished_run_is_refused(
    executors: Executors, session: ScriptedSession, sink: Sink
) -> None:
    fired, looked = await session.commands(("fire", {"item": "x"}), ("look", {"item": "x"}))
    await session.control(Kind.CANCELLED)
    await executors.start()
    for command in (fired, looked):
        done = await session.outcome(command)
        assert (done.state, done.rule) == ("refused", "fence")
    assert await session.records(fired) == [Kind.CLAIM, Kind.OUTCOME]
    assert sink.effects() == []


async def test_fenced_command_with_a_dead_claim_is_not_refused(
    executors: Executors, session: ScriptedSession, sink: Sink
) -> None:
    calls = [
        ("set", {"item": "a"}),
        ("build", {"item": "b"}),
        ("build", {"item": "c"}),
        ("fire", {"item": "d"}),
    ]
    commands = await session.commands(*calls)
    for command in commands:
        await session.record(command, Claimed(DEAD, 1, f"key-{command.call.n}"))
    sink.do("build", "b", "key-2", honour=True)
    await session.control(Kind.CANCELLED)
    executors.peers.dead.add(DEAD.instance)
    await executors.start()
    states = [(await session.outcome(command)).state for command in commands]
    # b was done, and the provider says so; c was not, and by now it cannot be any more or may still be: never "refused".
    assert states == ["unknown", "succeeded", "unknown", "unknown"]
    assert len(sink.effects()) == 1


async def test_begun_command_without_its_tool_is_unknown(
    executors: Executors, session: ScriptedSession
) -> None:
    command = await session.command("explode")
    await session.record(command, Claimed(DEAD, 1, "key"))
    executors.peers.dead.add(DEAD.instance)
    await executors.start()
    assert (await session.outcome(command)).state == "unknown"


async def test_command_of_a_paused_session_runs_after_resume(
    bus: Bus, executors: Executors, session: ScriptedSession, sink: Sink
) -> None:
    command = await session.command("fire")
    await session.control(Kind.PAUSED)
    await executors.start()

    async def delivered() -> bool:
        states = await bus.consumer_states(journal_stream())
        return states["executor-default"].delivered_sequence >= command.sequence

    await eventually(delivered)
    await session.control(Kind.RESUMED)
    assert (await session.outcome(command)).state == "succeeded"
    # It is older than the executor, which therefore looks before it claims.
    assert await session.records(command) == [Kind.CLAIM, Kind.OUTCOME]
    assert len(sink.effects()) == 1


async def test_kill_switch_defers_a_command_until_it_is_off(
    bus: Bus, executors: Executors, session: ScriptedSession, sink: Sink
) -> None:
    switches = SwitchJournal(bus, Committer(bus, journal_stream()), "test")

    async def turn(*, on: bool) -> None:
        wanted = Switch(session.ref.workspace, "session", session.ref.session, on, "ada", now_ms())
        await switches.turn(wanted, Asked(f"c-{on}", "ada", f"{on}"))

    await executors.start()
    await turn(on=True)
    command = await session.command("fire")

    async def given_back() -> bool:
        return Kind.RELEASE in await session.records(command)

    await eventually(given_back)
    assert sink.effects() == []
    await turn(on=False)
    assert (await session.outcome(command)).state == "succeeded"
    assert await session.records(command) == [Kind.CLAIM, Kind.RELEASE, Kind.CLAIM, Kind.OUTCOME]
    assert len(sink.effects()) == 1


# --- the gate


@pytest.mark.parametrize(("approved", "state"), [(True, "succeeded"), (False, "refused")])
async def test_command_waits_for_approval(
    executors: Executors, session: ScriptedSession, *, approved: bool, state: str
) -> None:
    command = await session.command("fire")
    await session.record(command, GateAsked("a-person-decides", "b", now_ms() + 60_000, command.sequence))
    await executors.start()
    other = await session.effects.load(session.ref, "default", command.call, command.sequence)
    assert other.outcome is None
    await session.record(command, GateDecided(approved, "b", "ada"))
    done = await session.outcome(command)
    assert (done.state, done.rule) == (state, "" if approved else "a-person-decides")


async def test_rejected_command_does_not_run_after_a_lost_claim(
    bus: Bus, executors: Executors, session: ScriptedSession, sink: Sink
) -> None:
    command = await session.command("set")
    asked = GateAsked("a-person-decides", "b", now_ms() + 60_000, command.sequence)
    await session.record(command, asked, GateDecided(approved=False, binding="b", by="ada"))
    gone = f"{SessionSubjects(session.ref).everything[:-1]}art.gone"
    await bus.publish(Message(gone, b"x"))
    assert await bus.purge(journal_stream(), gone) == 1
    await executors.start()
    done = await session.outcome(command)
    assert (done.state, done.error) == ("unknown", "claim_lost")
    assert sink.effects() == []
