"""A reset, whatever it comes into: the agent runs afterwards, and whatever wakes it does so."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.bus.port import Message
from anchorwatch.core.agents import Limits
from anchorwatch.core.names import SessionRef
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import Reset
from anchorwatch.journal.history import read_history
from anchorwatch.models.port import Situation, StepDecision
from anchorwatch.testing.checks.evidence import Evidence
from anchorwatch.testing.checks.wakes import check_wakes, ledger_of
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.topology.subjects import SessionSubjects

from tests.sim.test_control import in_flight
from tests.sim.test_planner import agent, mesh_test, obedient, once

BUDGET = 2_500


async def reset(mesh: SimMesh, ref: SessionRef, key: str) -> Any:
    def make(state: SessionState, id_: str) -> Reset:
        return Reset("ada", mesh.server.now_ms(), state.read_through, control_id=id_)

    return await mesh.order(ref, key, make)


def history_of(mesh: SimMesh, ref: SessionRef) -> Any:
    prefix = SessionSubjects(ref).everything.removesuffix(">")
    return read_history([each for each in mesh.journal() if each.subject.startswith(prefix)])


@pytest.mark.parametrize("seed", range(4))
def test_incident_over_budget_ends_with_a_run_after_the_reset(tmp_path: Path, seed: int) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", "planner", ("executor", obedient))
        limits = Limits(context_tokens_max=BUDGET)
        ref = await mesh.session("s", agent(tmp_path, once("fire"), heartbeat_s=3600, limits=limits))
        await mesh.until_rest(ref, 1)
        await mesh.say(ref, "long", "a word " * 6_000)
        over = await mesh.until_rest(ref, 2)
        assert over.last_run_outcome == "over_budget"
        await mesh.processes["executor-1"].kill()
        await mesh.say(ref, "go", kind="trigger")
        await in_flight(mesh, ref, (await mesh.anchor(ref)).run_id + 1)
        for n in range(20):
            await mesh.say(ref, f"stale-{n}", "old news", 1, "event")
        done = await reset(mesh, ref, "k")
        assert done.change.more["superseded"]["count"] == 20
        runs = (await mesh.anchor(ref)).run_id
        await mesh.processes["executor-1"].start()
        await mesh.say(ref, "t", kind="trigger")
        after = await mesh.until_rest(ref, runs + 1)
        assert after.last_run_outcome == "success"
        assert after.run_id > runs
        await asyncio.sleep(60)
        history = history_of(mesh, ref)
        assert list(check_wakes(Evidence(history))) == []
        assert ledger_of(history).of("pending") == ()
        stale = {each.sequence for each in history.inputs if each.input_id.startswith("stale-")}
        assert {ledger_of(history).wakes[each].disposition for each in stale} == {"superseded"}

    mesh_test(seed, body)


@pytest.mark.parametrize("wake", ["canary", "heartbeat", "event", "trigger"])
def test_each_kind_of_wake_starts_a_run_after_a_reset(tmp_path: Path, wake: str) -> None:
    async def body(mesh: SimMesh) -> None:
        woken: list[set[str]] = []

        def rules(situation: Situation) -> StepDecision:
            woken.append({str(each["kind"]) for each in situation.wakes})
            return StepDecision("looked")

        await mesh.open("observer", "planner")
        ref = await mesh.session("s", agent(tmp_path, rules, heartbeat_s=40))
        await mesh.until_rest(ref, 1)
        await reset(mesh, ref, "k")
        await mesh.until_rest(ref, 2, within_s=5)
        assert "canary" in woken[-1]
        if wake == "event":
            message = Message("aw.event.default.bench.changed", json.dumps({}).encode(), message_id="e")
            await mesh.bus.publish(message)
        elif wake == "trigger":
            await mesh.say(ref, "t", kind="trigger")
        if wake != "canary":
            await mesh.until_rest(ref, 3, within_s=60)
            assert {"heartbeat": "tick"}.get(wake, wake) in woken[-1]

    mesh_test(3, body)


@pytest.mark.parametrize("seed", range(2))
def test_burst_stale_wakes_and_heartbeat_are_one_counted_run(tmp_path: Path, seed: int) -> None:
    async def body(mesh: SimMesh) -> None:
        seen: list[Counter[str]] = []

        def rules(situation: Situation) -> StepDecision:
            seen.append(Counter(str(each["kind"]) for each in situation.wakes))
            return StepDecision("looked")

        await mesh.open("planner")
        ref = await mesh.session("s", agent(tmp_path, rules, heartbeat_s=30))
        await mesh.until_rest(ref, 1)
        await mesh.processes["planner-1"].kill()
        await asyncio.gather(*(mesh.say(ref, f"e{n}", "x", 1, "event") for n in range(1_000)))
        await asyncio.sleep(40)
        seen.clear()
        await mesh.processes["planner-1"].start()
        await mesh.until_rest(ref, 2, within_s=30)
        assert seen[0]["event"] == 1_000
        await asyncio.sleep(20)
        assert (await mesh.anchor(ref)).run_count == 2
        history = history_of(mesh, ref)
        assert list(check_wakes(Evidence(history))) == []
        ledger = ledger_of(history)
        assert {each.run for each in ledger.of("coalesced")} == {2}
        assert len(ledger.of("coalesced")) >= 999

    mesh_test(seed, body)
