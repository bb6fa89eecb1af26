"""An effect that a person settles: the session looks at it once, and its resource is free again."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from anchorwatch.codec import decode
from anchorwatch.core.effect.resolve import decide_resolve
from anchorwatch.core.effect.state import Owner, Resolution, Verdict
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.journal.effects import EffectJournal
from anchorwatch.models.port import ProposedCall, Situation, StepDecision
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.topology.subjects import OUTCOMES

from tests.sim.test_planner import agent, mesh_test
from tests.support.packs import Sink

CALL = CallId(1, 1, 1)
FRESH_MS = 4_000_000_000_000
"""An observation that never grows old, whatever the time of the simulation."""


async def settle(mesh: SimMesh, ref: SessionRef, verdict: Verdict = "done", call: CallId = CALL) -> None:
    """As the gateway does."""
    effects = EffectJournal(mesh.bus, mesh.committer, "outside")
    state = await effects.look(ref, "default", call, 0)
    asked = Resolution(verdict, "seen", "key", "body", mesh.server.now_ms())
    events = decide_resolve(f"{ref.session}/{call}", state, asked, "ada", Owner("gateway-1", "i1"))
    await effects.append_all(ref, "default", call, state, events, mesh.server.now_ms())


async def outcomes(mesh: SimMesh, ref: SessionRef) -> list[tuple[str, str, str]]:
    """(call, state, rule) of each outcome, in order."""
    bodies = [
        decode(payload).body
        for _, subject, payload in await mesh.records(ref)
        if subject.split(".")[-1] in OUTCOMES
    ]
    return [(".".join(map(str, each["call"])), each["state"], each.get("rule", "")) for each in bodies]


def texts(situation: Situation) -> list[str]:
    return [each["text"] for each in situation.wakes if each["kind"] == "resolution"]


@pytest.mark.parametrize("seed", range(6))
def test_resolution_wakes_the_session_once_despite_deaths(tmp_path: Path, seed: int) -> None:
    async def body(mesh: SimMesh) -> None:
        sink = Sink(tmp_path)
        sink.set_world(at_ms=FRESH_MS)
        seen: dict[int, list[str]] = {}

        def rules(situation: Situation) -> StepDecision:
            seen[situation.run_id] = texts(situation)
            if situation.steps or not (situation.run_id <= 2 or texts(situation)):
                return StepDecision("nothing more")
            mode = "lost" if situation.run_id == 1 else "ok"
            return StepDecision("", (ProposedCall("fire", {"item": "x", "mode": mode}),))

        await mesh.open("observer", "planner", "planner", "executor")
        ref = await mesh.session("s", agent(tmp_path, rules, heartbeat_s=3600))
        await mesh.until_rest(ref, 1)
        await mesh.say(ref, "m1", "again")
        await mesh.until_rest(ref, 2)
        assert await outcomes(mesh, ref) == [
            ("1.1.1", "unknown", ""),
            ("2.1.1", "refused", "resource_blocked"),
        ]
        await settle(mesh, ref, "not_done")
        victim = mesh.processes[("planner-1", "planner-2", "executor-1")[seed % 3]]
        await asyncio.sleep(0.02 * seed)
        await victim.kill()
        await victim.start()
        await asyncio.sleep(60)
        (run,) = (run for run, report in seen.items() if report)
        (report,) = seen[run]
        assert "s/1.1.1 (fire on fire/x)" in report
        assert "it was not done, says ada: seen" in report
        found = await outcomes(mesh, ref)
        assert found[-1] == (f"{run}.1.1", "succeeded", ""), "its resource is free again"
        state = await mesh.sessions.load(ref, 0)
        assert [call.state for call in state.history[0].steps[0].calls] == ["resolved"]
        assert state.unsettled == ()
        assert Counter(effect["item"] for effect in sink.effects()) == {"x": 2}

    mesh_test(seed, body)


def test_resolution_in_a_running_turn_joins_it_without_a_wake(tmp_path: Path) -> None:
    """Two calls: one is lost, and settled while the other is still at work."""

    async def body(mesh: SimMesh) -> None:
        Sink(tmp_path).set_world(at_ms=FRESH_MS)
        shown: list[list[str]] = []

        def rules(situation: Situation) -> StepDecision:
            if situation.steps:
                shown.append([call.state for call in situation.steps[0]])
                return StepDecision("done")
            calls = [("x", "lost"), ("y", "hang")] if situation.run_id == 1 else []
            return StepDecision(
                "", tuple(ProposedCall("fire", {"item": item, "mode": mode}) for item, mode in calls)
            )

        async def lost() -> bool:
            return ("1.1.1", "unknown", "") in await outcomes(mesh, ref)

        await mesh.open("observer", "planner", "executor")
        ref = await mesh.session("s", agent(tmp_path, rules, heartbeat_s=3600))
        await mesh.until(lost)
        await settle(mesh, ref)
        anchor = await mesh.until_rest(ref, 1)
        await asyncio.sleep(60)
        assert shown[0] == ["resolved", "unknown"]
        assert anchor.last_run_outcome == "unresolved", "the other one is unknown"
        assert not [subject for _, subject, _ in await mesh.records(ref) if subject.startswith("in.resolved")]

    mesh_test(1, body)


@pytest.mark.parametrize(("verdict", "outcome"), [("done", "success"), ("not_done", "failed")])
def test_effect_settled_as_not_done_is_not_a_success(tmp_path: Path, verdict: Verdict, outcome: str) -> None:
    async def body(mesh: SimMesh) -> None:
        Sink(tmp_path).set_world(at_ms=FRESH_MS)

        def rules(situation: Situation) -> StepDecision:
            if situation.steps:
                return StepDecision("done")
            calls = (
                ProposedCall("fire", {"item": "x", "mode": "lost"}),
                ProposedCall("look", {"item": "x", "mode": "hang"}),
            )
            return StepDecision("", calls)

        async def lost() -> bool:
            return ("1.1.1", "unknown", "") in await outcomes(mesh, ref)

        await mesh.open("observer", "planner", "executor")
        ref = await mesh.session("s", agent(tmp_path, rules, heartbeat_s=3600))
        await mesh.until(lost)
        await settle(mesh, ref, verdict)
        assert (await mesh.until_rest(ref, 1)).last_run_outcome == outcome

    mesh_test(2, body)
