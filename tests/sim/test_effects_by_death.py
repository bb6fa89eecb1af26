"""What becomes of an effect, for each class and each moment at which its executor dies; counted outside the journal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from anchorwatch import edges
from anchorwatch.codec import decode
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.edges import Edge
from anchorwatch.models.port import ProposedCall, Situation, StepDecision
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.testing.process import current

from tests.sim.test_planner import Decide, agent, mesh_test
from tests.support.packs import Sink

FRESH_MS = 4_000_000_000_000
"""An observation that never grows old, whatever the time of the simulation."""
DURING = "during the effect"
MOMENTS: dict[str, str | Edge] = {
    "before the claim": Edge.EXECUTOR_CLAIM_BEFORE,
    "after the claim": Edge.EXECUTOR_CLAIM_AFTER,
    "before the request left": Edge.EXECUTOR_EFFECT_BEFORE,
    "when it is done and nobody has heard": DURING,
    "after the effect": Edge.EXECUTOR_EFFECT_AFTER,
    "before its record": Edge.EXECUTOR_OUTCOME_BEFORE,
    "after its record": Edge.EXECUTOR_OUTCOME_AFTER,
    "before the ack": Edge.EXECUTOR_ACK_BEFORE,
}
# Of an irreversible one: what is recorded, and how often it was done. The others end well at every moment, done once.
IRREVERSIBLE = {
    "before the claim": ("succeeded", 1),
    "after the claim": ("unknown", 0),
    "before the request left": ("unknown", 0),
    "when it is done and nobody has heard": ("unknown", 1),
    "after the effect": ("unknown", 1),
    "before its record": ("unknown", 1),
    "after its record": ("succeeded", 1),
    "before the ack": ("succeeded", 1),
}
CASES = [
    *((tool, moment, "succeeded", int(tool != "look")) for tool in ("set", "build") for moment in MOMENTS),
    *(("fire", moment, *IRREVERSIBLE[moment]) for moment in MOMENTS),
    # A read has no claim, and is run again.
    *(
        ("look", moment, "succeeded", 0)
        for moment in ("before the request left", "after the effect", "before its record", "before the ack")
    ),
]


def rules(tool: str, mode: str) -> Decide:
    def decide(situation: Situation) -> StepDecision:
        if situation.steps or situation.run_id > 1:
            return StepDecision("done")
        return StepDecision("", (ProposedCall(tool, {"item": "x", "mode": mode}),))

    return decide


async def outcomes(mesh: SimMesh, ref: SessionRef) -> list[str]:
    records = [
        decode(payload) for _, subject, payload in await mesh.records(ref) if subject.startswith("fx.")
    ]
    return [record.body["state"] for record in records if record.kind == Kind.OUTCOME]


@pytest.fixture(autouse=True)
def no_hook() -> Iterator[None]:
    yield
    edges.install(None)


class Death:
    """Kills the executor that comes to ``edge`` first."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self.struck = ""

    def __call__(self, edge: Edge) -> None:
        life = current()
        if edge is self._edge and life is not None and not self.struck:
            self.struck = life.process.instance
            life.die_here()


async def die(mesh: SimMesh, sink: Sink, moment: str | Edge) -> str:
    """Let the executor die at that moment; returns its instance."""
    if isinstance(moment, Edge):
        death = Death(moment)
        edges.install(death)

        async def struck() -> bool:
            return bool(death.struck)

        await mesh.until(struck)
        return death.struck

    async def done_outside() -> bool:
        return bool(sink.effects("x"))

    await mesh.until(done_outside)
    await mesh.processes["executor-1"].kill()
    return "executor-1"


@pytest.mark.parametrize("back", [True, False], ids=["it comes back", "another goes on"])
@pytest.mark.parametrize(("tool", "moment", "state", "times"), CASES)
def test_effect_is_settled_as_its_class_allows_at_any_death(
    tmp_path: Path, tool: str, moment: str, state: str, times: int, *, back: bool
) -> None:
    async def body(mesh: SimMesh) -> None:
        sink = Sink(tmp_path)
        sink.set_world(at_ms=FRESH_MS)
        mode = "hang_once" if MOMENTS[moment] == DURING else "ok"
        await mesh.open("observer", "planner", "executor")
        ref = await mesh.session("s", agent(tmp_path, rules(tool, mode), heartbeat_s=3600))
        dead = await die(mesh, sink, MOMENTS[moment])
        await (mesh.processes[dead].start() if back else mesh.add("executor"))
        await mesh.until_rest(ref, 1)
        await asyncio.sleep(10)
        assert await outcomes(mesh, ref) == [state], "it has one outcome"
        assert len(sink.effects("x")) == times

    mesh_test(1, body)
