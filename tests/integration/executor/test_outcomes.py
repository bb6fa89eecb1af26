"""The outcome of a command, by the effect class of its tool and the behaviour of the provider."""

from __future__ import annotations

import pytest
from anchorwatch.bus.port import Bus, Message
from anchorwatch.core.records import Kind
from anchorwatch.journal.artifacts import ArtifactJournal
from anchorwatch.journal.commit import Committer

from tests.integration.executor.conftest import Executors
from tests.support.packs import Sink
from tests.support.sessions import ScriptedSession


async def test_command_runs_once_and_its_outcome_is_recorded(
    executors: Executors, session: ScriptedSession, sink: Sink
) -> None:
    await executors.start()
    command = await session.command("fire", item="x")
    done = await session.outcome(command)
    assert (done.state, done.text, done.data) == ("succeeded", "fire x", {"item": "x"})
    assert (done.tool, done.resource, done.turn_id) == ("fire", "fire/x", "turn_1")
    assert await session.records(command) == [Kind.CLAIM, Kind.OUTCOME]
    assert [effect["key"] for effect in sink.effects()] == [done.effect_key]


async def test_read_needs_no_claim(executors: Executors, session: ScriptedSession) -> None:
    await executors.start()
    command = await session.command("look")
    assert (await session.outcome(command)).state == "succeeded"
    assert await session.records(command) == [Kind.OUTCOME]


@pytest.mark.parametrize(
    ("tool", "mode", "state", "error", "effects"),
    [
        ("fire", "refuse", "failed", "tool_failed", 0),
        ("set", "refuse", "failed", "tool_failed", 0),
        ("look", "refuse", "failed", "tool_failed", 0),
        ("look", "lost_before", "failed", "outcome_unknown", 0),
        ("look", "crash", "failed", "tool_error", 0),
        ("look", "hang", "failed", "timeout", 0),
        ("fire", "lost", "unknown", "outcome_unknown", 1),
        ("fire", "lost_before", "unknown", "outcome_unknown", 0),
        ("fire", "crash", "unknown", "tool_error", 1),
        ("fire", "hang", "unknown", "timeout", 1),
        ("set", "lost_once", "succeeded", "", 1),
        ("set", "lost", "unknown", "outcome_unknown", 1),
        ("set", "crash", "unknown", "tool_error", 1),
        ("build", "lost", "succeeded", "", 1),
        ("build", "crash", "succeeded", "", 1),
        ("build", "hang", "succeeded", "", 1),
        ("build", "lost_before", "unknown", "outcome_unknown", 0),
    ],
)
async def test_lost_answer_is_never_guessed(
    executors: Executors,
    session: ScriptedSession,
    sink: Sink,
    tool: str,
    mode: str,
    state: str,
    error: str,
    effects: int,
) -> None:
    await executors.start()
    done = await session.outcome(await session.command(tool, mode))
    assert (done.state, done.error) == (state, error)
    assert len(sink.effects()) == effects


async def test_commands_of_a_step_run_concurrently(
    executors: Executors, session: ScriptedSession, sink: Sink
) -> None:
    await executors.start("executor-1")
    await executors.start("executor-2")
    calls = [("fire", {"item": f"i{n}"}) for n in range(12)]
    decided = await session.commands(*calls)
    assert {(await session.outcome(each)).state for each in decided} == {"succeeded"}
    assert sorted(effect["item"] for effect in sink.effects()) == sorted(f"i{n}" for n in range(12))


async def test_large_text_becomes_an_artifact_with_an_excerpt(
    executors: Executors, session: ScriptedSession, bus: Bus
) -> None:
    await executors.start()
    command = await session.command("look", "large")
    done = await session.outcome(command)
    kept = done.data["artifacts"][0]
    assert len(done.text) < 3000
    assert kept["id"] in done.text
    store = ArtifactJournal(bus, Committer(bus, "JOURNAL_0"), "test")
    record, data = await store.read(session.ref, kept["id"])
    assert data == b"x" * 20_000
    assert record.provenance.call == str(command.call)
    assert record.provenance.derived_from == ("d1",)


async def test_artifact_of_a_tool_is_stored_before_its_outcome(
    executors: Executors, session: ScriptedSession, bus: Bus
) -> None:
    await executors.start()
    done = await session.outcome(await session.command("fire", "artifact"))
    kept = done.data["artifacts"][0]
    assert (kept["name"], kept["media_type"], kept["size_bytes"]) == ("report.md", "text/markdown", 7)
    assert [record.kind for record in await session.last("art.*")] == [Kind.ARTIFACT]
    store = ArtifactJournal(bus, Committer(bus, "JOURNAL_0"), "test")
    assert (await store.read(session.ref, kept["id"]))[1] == b"# done\n"


async def test_result_that_is_not_json_becomes_text(executors: Executors, session: ScriptedSession) -> None:
    await executors.start()
    done = await session.outcome(await session.command("fire", "odd"))
    assert done.state == "succeeded"
    assert done.data == {"when": "x", "big": str(2**80), "set": [1], "3": "inf"}


async def test_unreadable_command_delays_no_other(
    executors: Executors, session: ScriptedSession, bus: Bus
) -> None:
    await executors.start()
    await bus.publish(Message("aw.journal.0.default.other.p.cmd.default", b"\xff\x00garbage"))
    assert (await session.outcome(await session.command("fire"))).state == "succeeded"
