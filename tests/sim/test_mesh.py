"""Observer, planner and executor, their real code on the bus in memory, killed at random moments.

What an outside sink counts and what the journal says must agree.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from pathlib import Path

import pytest
from anchorwatch.bus.port import Message
from anchorwatch.bus.sim.loop import run as run_virtual
from anchorwatch.codec import decode
from anchorwatch.core.names import SessionRef
from anchorwatch.journal.history import read_history
from anchorwatch.models.port import ProposedCall, Situation, StepDecision
from anchorwatch.packs import registry
from anchorwatch.testing.checks import Call, Evidence, check
from anchorwatch.testing.mesh import SimMesh

from tests.sim.test_planner import ScriptedPack
from tests.support.packs import TOOLS, Sink, bench_agent

TURNS = 4
FRESH_MS = 4_000_000_000_000
"""An observation that never grows old, whatever the time of the simulation."""


def rules_for(tool: str) -> ScriptedPack:
    """One call a turn, for an item that names the turn."""

    def rules(situation: Situation) -> StepDecision:
        if situation.steps:
            return StepDecision("done")
        return StepDecision("", (ProposedCall(tool, {"item": f"run-{situation.run_id}"}),))

    return ScriptedPack(rules)


async def outcomes(mesh: SimMesh, ref: SessionRef) -> dict[str, str]:
    """Call -> state of its one outcome."""
    found: dict[str, str] = {}
    for _, subject, payload in await mesh.records(ref):
        if subject.endswith(".done"):
            body = decode(payload).body
            call = ".".join(map(str, body["call"]))
            assert call not in found or body["state"] == "resolved", "a command has one outcome"
            found[call] = body["state"]
    return found


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("tool", ["set", "build", "fire"])
def test_whatever_is_killed_nothing_is_lost_done_twice_or_guessed(
    tmp_path: Path, tool: str, seed: int
) -> None:
    async def main() -> None:
        mesh = SimMesh(seed=seed, debounce_p0_s=0, debounce_p1_s=0, sweep_s=5)
        chance = random.Random(seed)
        sink = Sink(tmp_path)
        sink.set_world(at_ms=FRESH_MS)
        registry.register(rules_for(tool))
        await mesh.open("observer", "planner", "planner", "executor", "executor")
        ref = await mesh.session("s", bench_agent(tmp_path, pack="scripted", heartbeat_s=3600))
        await mesh.until_rest(ref, 1)
        published = 0
        for _ in range(TURNS):
            published += 1
            event = Message(
                "aw.event.default.bench.changed",
                json.dumps({"n": published}).encode(),
                message_id=f"e{published}",
            )
            await mesh.bus.publish(event)
            await asyncio.sleep(chance.uniform(0, 0.3))
            victim = mesh.processes[chance.choice(sorted(mesh.processes))]
            await victim.kill()
            await asyncio.sleep(chance.choice([0, 0.2, 5]))
            await victim.start()
        await asyncio.sleep(60)
        await mesh.until_rest(ref, 2, within_s=120)
        found = await outcomes(mesh, ref)
        history = read_history(mesh.journal())
        await mesh.close()

        assert sum(each.kind == "event" for each in history.inputs) == published
        done = Counter(effect["key"] for effect in sink.effects())
        calls = {key: Call(key, begun=times, done=times) for key, times in done.items()}
        classes = {each.name: each.effect_class for each in TOOLS}
        assert check(Evidence(history, classes=classes, calls=calls)) == []
        if tool != "fire":
            assert set(found.values()) == {"succeeded"}, "a key that is honoured leaves nothing unknown"

    run_virtual(main(), seed)
