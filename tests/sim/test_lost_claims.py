"""A claim that the journal has lost: its command is not taken for one that nobody has begun."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from anchorwatch import edges
from anchorwatch.codec import decode
from anchorwatch.core.effect.state import Outcome
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.edges import Edge
from anchorwatch.journal.effect_mapping import read_outcome
from anchorwatch.journal.effects import EffectJournal
from anchorwatch.models.port import ProposedCall, Situation, StepDecision
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.topology.streams import journal_stream
from anchorwatch.topology.subjects import CLAIM, OUTCOMES

from tests.sim.test_effects_by_death import FRESH_MS, die
from tests.sim.test_lost_records import lose
from tests.sim.test_planner import Decide, agent, mesh_test
from tests.sim.test_quarantine import SETTINGS, quarantined, records_of
from tests.sim.test_repair import confirm, repairer, runs_again
from tests.sim.test_verify import examined
from tests.support.packs import Sink

DONE, SENT_NOTHING = Edge.EXECUTOR_EFFECT_AFTER, Edge.EXECUTOR_CLAIM_AFTER


@pytest.fixture(autouse=True)
def no_hook() -> Iterator[None]:
    yield
    edges.install(None)


def then_another(tool: str) -> Decide:
    """One call in the first run, and a change of something else in each later one."""

    def decide(situation: Situation) -> StepDecision:
        if situation.steps:
            return StepDecision("done")
        run = situation.run_id
        what = (tool, "x") if run == 1 else ("set", f"run-{run}")
        return StepDecision("", (ProposedCall(what[0], {"item": what[1], "mode": "ok"}),))

    return decide


async def claimed_and_dead(mesh: SimMesh, tmp_path: Path, tool: str, moment: Edge) -> tuple[SessionRef, int]:
    """A session whose command was claimed by an executor that died then; and where the claim stands."""
    Sink(tmp_path).set_world(at_ms=FRESH_MS)
    await mesh.open("observer", "planner", "executor", "notifier")
    ref = await mesh.session("s", agent(tmp_path, then_another(tool), heartbeat_s=3600))
    victim = await die(mesh, Sink(tmp_path), moment)
    assert victim == "executor-1"
    [claim] = [each for each in records_of(mesh, ref) if each.subject.endswith(".claim")]
    return ref, claim.sequence


async def outcome_of(mesh: SimMesh, ref: SessionRef) -> Outcome:
    found: list[Outcome] = []

    async def there() -> bool:
        done = [each for each in records_of(mesh, ref) if each.subject.split(".")[-1] in OUTCOMES]
        found[:] = [read_outcome(decode(each.payload).body) for each in done]
        return bool(found)

    await mesh.until(there, within_s=120)
    return found[-1]


@pytest.mark.parametrize("anew", [False, True], ids=["delivered again", "of a consumer made anew"])
@pytest.mark.parametrize(
    ("tool", "moment", "state", "times"),
    [
        ("fire", DONE, "unknown", 1),
        ("fire", SENT_NOTHING, "unknown", 0),
        ("set", DONE, "succeeded", 1),
        ("set", SENT_NOTHING, "succeeded", 1),
        ("build", DONE, "succeeded", 1),
        ("build", SENT_NOTHING, "succeeded", 1),
    ],
)
def test_lost_claim_command_is_settled_as_its_class_allows(
    tmp_path: Path, tool: str, moment: Edge, state: str, times: int, *, anew: bool
) -> None:
    async def body(mesh: SimMesh) -> None:
        ref, claim = await claimed_and_dead(mesh, tmp_path, tool, moment)
        mesh.server.stream(journal_stream()).remove(claim)
        if anew:
            await mesh.bus.delete_consumer(journal_stream(), "executor-default")
        await mesh.processes["executor-1"].start()
        done = await outcome_of(mesh, ref)
        assert done.state == state
        if state == "unknown" and tool == "fire":
            assert (done.error, str(claim) in done.text) == ("claim_lost", True)
        await asyncio.sleep(60)
        assert len(Sink(tmp_path).effects("x")) == times

    mesh_test(1, body, **SETTINGS)


def test_lost_claim_may_have_run_before_the_fence(tmp_path: Path) -> None:
    """An order that ends the turn must not say that such a command never starts."""

    async def body(mesh: SimMesh) -> None:
        ref, claim = await claimed_and_dead(mesh, tmp_path, "fire", DONE)
        [command] = [each for each in records_of(mesh, ref) if ".p.cmd." in each.subject]
        fence = (await mesh.control(ref, Kind.CANCELLED, "cancel")).sequence
        mesh.server.stream(journal_stream()).remove(claim)
        effects = EffectJournal(mesh.bus, mesh.committer, "outside")
        state = await effects.before(ref, "default", CallId(1, 1, 1), command.sequence, fence)
        assert (state.first_claim, state.outcome) == (claim, None)
        state = await effects.before(ref, "default", CallId(1, 1, 1), command.sequence, claim)
        assert (state.first_claim, state.outcome) == (0, None)

    mesh_test(1, body, **SETTINGS)


@pytest.mark.parametrize("moment", [DONE, SENT_NOTHING])
def test_unreadable_claim_stops_its_session_until_a_repair(tmp_path: Path, moment: Edge) -> None:
    async def body(mesh: SimMesh) -> None:
        ref, claim = await claimed_and_dead(mesh, tmp_path, "fire", moment)
        lose(mesh, claim)
        await mesh.processes["executor-1"].start()
        await quarantined(mesh, ref)
        await asyncio.sleep(60)
        assert not [
            each for each in records_of(mesh, ref) if each.subject.split(".")[-1] in (CLAIM, *OUTCOMES)
        ]
        found = await examined(mesh, ref)
        [lost] = [each for each in found.open if each.trouble == "lost"]
        assert (lost.sequence, "fx.default.1.1.1.claim" in lost.what) == (claim, True)
        shown = await repairer(mesh).plan(ref)
        assert shown.to_json()["unclear"] == ["s/1.1.1"]
        await repairer(mesh).carry_out(ref, await confirm(mesh, ref))
        assert (await outcome_of(mesh, ref)).state == "unknown"
        await runs_again(mesh, ref)
        assert len(Sink(tmp_path).effects("x")) == (moment is DONE)

    mesh_test(2, body, **SETTINGS)


def test_record_of_a_lost_command_stops_its_session(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        ref, claim = await claimed_and_dead(mesh, tmp_path, "fire", DONE)
        [command] = [each for each in records_of(mesh, ref) if ".p.cmd." in each.subject]
        await mesh.processes["planner-1"].kill()
        mesh.server.stream(journal_stream()).remove(command.sequence)
        await mesh.processes["planner-1"].start()
        _, record = await quarantined(mesh, ref)
        assert record.body["damage"]["sequence"] == claim
        await mesh.processes["executor-1"].start()
        await repairer(mesh).carry_out(ref, await confirm(mesh, ref))
        assert (await outcome_of(mesh, ref)).state == "unknown"
        await runs_again(mesh, ref)
        assert len(Sink(tmp_path).effects("x")) == 1

    mesh_test(3, body, **SETTINGS)
