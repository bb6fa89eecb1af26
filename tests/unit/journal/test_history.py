"""The history of a session is what its records say: read from the journal of a whole mesh in memory."""

from __future__ import annotations

from pathlib import Path

from anchorwatch.bus.port import Stored
from anchorwatch.core.names import CallId
from anchorwatch.core.records import Kind
from anchorwatch.journal.history import History, read_history
from anchorwatch.models.port import ProposedCall, Situation, StepDecision
from anchorwatch.packs import registry
from anchorwatch.testing.bus.loop import run
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.topology.streams import journal_stream
from anchorwatch.topology.subjects import SessionSubjects

from tests.support.packs import BenchPack, Sink, bench_agent


class OneCall(BenchPack):
    """Asks for one call when a person spoke, and for none at a check."""

    name = "one-call"

    def rules(self, situation: Situation) -> StepDecision:
        spoken = any(wake["kind"] == "message" for wake in situation.wakes)
        if spoken and not situation.steps:
            return StepDecision("set it", (ProposedCall("set", {"item": "x"}),))
        return StepDecision("done")


async def lived(directory: Path) -> tuple[Stored, ...]:
    """The records of a session: a first check, then a message that led to a call."""
    registry.register(OneCall())
    mesh = SimMesh(seed=1)
    try:
        await mesh.open("planner", "executor", "observer")
        ref = await mesh.session("s", bench_agent(directory, pack="one-call"))
        await mesh.until_rest(ref, 1)
        Sink(directory).set_world(at_ms=mesh.server.now_ms())
        await mesh.say(ref, "k-1", "set it")
        await mesh.until_rest(ref, 2)
        page = await mesh.bus.range(journal_stream(), SessionSubjects(ref).everything, 1)
        return page.messages
    finally:
        await mesh.close()


def read(tmp_path: Path) -> History:
    return read_history(run(lived(tmp_path), 1))


def test_history_has_runs_with_inputs_and_ends(tmp_path: Path) -> None:
    history = read(tmp_path)
    assert [each.anchor.run_id for each in history.of_kind(Kind.ACQUIRED)] == [1, 2]
    assert [each.kind for each in history.taken(1)] == ["tick"]
    assert [(each.kind, each.text) for each in history.taken(2) if each.kind != "tick"] == [
        ("message", "set it")
    ]
    ended = history.ended(2)
    assert ended is not None
    assert (ended.anchor.run_count, ended.anchor.last_run_outcome, ended.text) == (2, "success", "done")


def test_history_has_a_call_from_command_to_outcome(tmp_path: Path) -> None:
    history = read(tmp_path)
    call = CallId(2, 1, 1)
    (command,), (claim,) = history.commands, history.claims_of(call)
    done = history.outcome_of(call)
    assert done is not None
    assert (command.call, command.decided.tool) == (call, "set")
    assert command.sequence < claim.sequence < done.sequence
    assert (claim.claimed.owner.instance, claim.claimed.attempt) == ("executor-1", 1)
    assert (done.outcome.state, done.outcome.claim_sequence) == ("succeeded", claim.sequence)


def test_prompt_shows_the_anchor_before_its_run(tmp_path: Path) -> None:
    history = read(tmp_path)
    first_end = history.ended(1)
    assert first_end is not None
    shown = [
        (each.step, each.proof.anchor_revision, each.proof.anchor_sha256)
        for each in history.prompts
        if each.run == 2 and each.proof
    ]
    assert shown == [(step, first_end.sequence, first_end.digest) for step in (1, 2)]
    assert history.shown(history.prompts[-1].sequence) == first_end


def test_history_of_no_records_is_empty() -> None:
    assert read_history([]) == History()
