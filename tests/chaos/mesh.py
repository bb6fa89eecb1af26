"""A mesh of real processes for tests that kill them, with independent counts: the outside world, receivers, notes of calls."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anchorwatch.bus.port import Bus
from anchorwatch.core.records import Kind
from anchorwatch.journal.history import History
from anchorwatch.packs import recording
from anchorwatch.packs.port import Stimulus
from anchorwatch.testing.checks import Violation, check
from anchorwatch.testing.crash_test.actor import Actor
from anchorwatch.testing.crash_test.collect import REST_S_MAX, collect, rest
from anchorwatch.testing.crash_test.mesh import CrashMesh
from anchorwatch.testing.crash_test.receivers import Receivers
from anchorwatch.topology.streams import AGENTS_BUCKET

from tests.support.packs import TOOLS, Sink, bench_agent
from tests.support.scripted import SOURCE, ScriptedRuntime, Step, order
from tests.support.waiting import eventually

KILLED = -9
QUICK = {
    # After its first turn a session has no wake but those that a test causes.
    "ANCHORWATCH_HEARTBEAT_S": "3600",
    "ANCHORWATCH_PROBE_INTERVAL_S": "0.3",
    "ANCHORWATCH_DEBOUNCE_P0_S": "0",
    "ANCHORWATCH_DEBOUNCE_P1_S": "0",
    "ANCHORWATCH_SWEEP_S": "3",
    "ANCHORWATCH_LEASE_S": "3",
    # A dead letter opens after two failures, within seconds.
    "ANCHORWATCH_DEAD_LETTER_TRIES": "2",
}
WAKES_MAX = 10_000
_names = itertools.count(1)


@dataclass
class ChaosMesh:
    """A running mesh. Each of its sessions has its own agent and outside world."""

    mesh: CrashMesh
    receivers: Receivers

    @property
    def notes(self) -> Path:
        return self.mesh.root / "calls.jsonl"

    def actor(self, bus: Bus, **agent: Any) -> ChaosSession:
        """A session that the mesh does not have yet."""
        return ChaosSession.of(self, bus, f"s{next(_names)}", **agent)


@contextmanager
def chaos_mesh(
    root: Path,
    counts: Mapping[str, int],
    settings: Mapping[str, str] | None = None,
    kind: type[CrashMesh] = CrashMesh,
) -> Iterator[ChaosMesh]:
    """A mesh for the length of a ``with`` block. Afterwards none of its processes runs, and no log has a traceback."""
    root.mkdir(parents=True, exist_ok=True)
    with Receivers(root / "scripted") as receivers:
        mesh = kind(
            root,
            counts,
            {
                **QUICK,
                "ANCHORWATCH_NOTIFY": str(receivers.routes),
                recording.VARIABLE: str(root / "calls.jsonl"),
                **(settings or {}),
            },
            modules=("tests.support.scripted",),
        )
        try:
            asyncio.run(mesh.open())
            yield ChaosMesh(mesh, receivers)
        finally:
            mesh.close()
        faults = mesh.faults()
        assert faults == [], "\n".join(faults)


class ChaosSession(Actor):
    """A session whose messages name its calls, with its own outside world."""

    chaos: ChaosMesh
    world: Sink

    @classmethod
    def of(cls, chaos: ChaosMesh, bus: Bus, name: str, **agent: Any) -> ChaosSession:
        directory = chaos.mesh.root / "worlds" / name
        fields = {
            "name": name,
            "pack": "scripted",
            "subscriptions": (f"{SOURCE}.{name}.>",),
            "version": 0,
            **agent,
        }
        report = cls(chaos.mesh, bus, bench_agent(directory, **fields))
        report.chaos, report.world = chaos, Sink(directory)
        return report

    async def make_and_rest(self) -> None:
        """Make it, and wait for the end of its first turn, which needs no input."""
        await self.make()

        async def had_a_turn() -> bool:
            return bool((await self.journal.history()).of_kind(Kind.TURN_ENDED))

        await eventually(had_a_turn, REST_S_MAX, f"{self.name} has its first turn")
        await self.rest()

    async def say(self, *steps: Step, more: str = "") -> int:
        """Send a person's message that names these steps; ``more`` makes it longer. Returns its sequence."""
        # An unknown effect blocks its resource for every session of the pack, so each has its own items.
        steps = tuple([(tool, f"{self.name}-{item}", mode) for tool, item, mode in step] for step in steps)
        # An urgent message would join the running turn after its first step.
        return await self.send(Stimulus(order(*steps) + more, priority="P1"))

    async def publish(self, data: str = "") -> None:
        """Publish an event that reaches it."""
        await self.send(Stimulus(source=SOURCE, type=f"{self.name}.note", data={"said": data}))

    async def rest(self, within_s: float = REST_S_MAX) -> History:
        """The history, once the session is at rest."""
        return await rest(self.journal, self.acknowledged, within_s)

    async def violations(self, within_s: float = REST_S_MAX) -> list[Violation]:
        """The violated guarantees, once the session is at rest and no wake is pending."""
        history = await self.rest(within_s)
        await eventually(lambda: self.is_accounted_for(history), within_s, f"{self.name}: no wake is pending")
        evidence = await collect(
            self.ref,
            history,
            self.acknowledged,
            classes={tool.name: tool.effect_class for tool in TOOLS},
            notes=self.chaos.notes,
            runtime=ScriptedRuntime(self.world, honour=True),
            arrivals=self.chaos.receivers.arrivals,
        )
        return check(evidence)

    async def is_accounted_for(self, history: History) -> bool:
        """Whether memory shows every input, and no pending wake."""
        wakes = await self._request(lambda api: api.pages(f"/api/sessions/{self.name}/wakes", WAKES_MAX))
        shown = {wake["sequence"] for wake in wakes if wake["disposition"] != "pending"}
        inputs = {each.sequence for each in history.inputs}
        return inputs <= shown and len(shown) == len(wakes)

    async def leave(self) -> None:
        """Delete the session, so that no service checks it again."""
        await self.control("delete")
        agents = await self.bus.bucket(AGENTS_BUCKET)
        key = f"session.{self.ref.workspace}.{self.name}"
        entry = await agents.get(key)
        if entry is not None:
            await agents.delete(key, entry.revision)
