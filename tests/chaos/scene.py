"""A mesh of real processes that is killed, and what counts beside it: the outside world, receivers, the notes of calls."""

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
from tests.support.told import SOURCE, Step, ToldRuntime, order
from tests.support.waiting import eventually

KILLED = -9
QUICK = {
    # Behind its first turn nothing wakes a session by itself but what a scene asks for.
    "ANCHORWATCH_HEARTBEAT_S": "3600",
    "ANCHORWATCH_PROBE_INTERVAL_S": "0.3",
    "ANCHORWATCH_DEBOUNCE_P0_S": "0",
    "ANCHORWATCH_DEBOUNCE_P1_S": "0",
    "ANCHORWATCH_SWEEP_S": "3",
    "ANCHORWATCH_LEASE_S": "3",
    # What fails twice is shown to people, who need not wait for minutes of tries.
    "ANCHORWATCH_DEAD_LETTER_TRIES": "2",
}
WAKES_MAX = 10_000
_names = itertools.count(1)


@dataclass
class Scene:
    """``mesh`` runs; sessions are made in it, each with an agent and an outside world of its own."""

    mesh: CrashMesh
    receivers: Receivers

    @property
    def notes(self) -> Path:
        return self.mesh.root / "calls.jsonl"

    def actor(self, bus: Bus, **agent: Any) -> Told:
        """A session that is not made yet."""
        return Told.of(self, bus, f"s{next(_names)}", **agent)


@contextmanager
def playing(
    root: Path,
    counts: Mapping[str, int],
    settings: Mapping[str, str] | None = None,
    kind: type[CrashMesh] = CrashMesh,
) -> Iterator[Scene]:
    """A scene for the length of a block. Afterwards nothing of it runs, and nothing in it had a fault."""
    root.mkdir(parents=True, exist_ok=True)
    with Receivers(root / "told") as receivers:
        mesh = kind(
            root,
            counts,
            {
                **QUICK,
                "ANCHORWATCH_NOTIFY": str(receivers.routes),
                recording.VARIABLE: str(root / "calls.jsonl"),
                **(settings or {}),
            },
            modules=("tests.support.told",),
        )
        try:
            asyncio.run(mesh.open())
            yield Scene(mesh, receivers)
        finally:
            mesh.close()
        faults = mesh.faults()
        assert faults == [], "\n".join(faults)


class Told(Actor):
    """A session that does what its messages say, with an outside world of its own."""

    scene: Scene
    world: Sink

    @classmethod
    def of(cls, scene: Scene, bus: Bus, name: str, **agent: Any) -> Told:
        directory = scene.mesh.root / "worlds" / name
        fields = {
            "name": name,
            "pack": "told",
            "subscriptions": (f"{SOURCE}.{name}.>",),
            "version": 0,
            **agent,
        }
        told = cls(scene.mesh, bus, bench_agent(directory, **fields))
        told.scene, told.world = scene, Sink(directory)
        return told

    async def make_and_rest(self) -> None:
        """Make it, and wait for the end of the first turn, which a session takes of itself."""
        await self.make()

        async def had_a_turn() -> bool:
            return bool((await self.journal.history()).of_kind(Kind.TURN_ENDED))

        await eventually(had_a_turn, REST_S_MAX, f"{self.name} has its first turn")
        await self.rest()

    async def say(self, *steps: Step, more: str = "") -> int:
        """A person's message that has these steps done; ``more`` makes it longer. Its sequence."""
        # An effect that is unknown blocks its resource for every session of the pack: each has items of its own.
        steps = tuple([(tool, f"{self.name}-{item}", mode) for tool, item, mode in step] for step in steps)
        # Not urgent: what is, would join a turn that runs, behind its first step.
        return await self.send(Stimulus(order(*steps) + more, priority="P1"))

    async def publish(self, data: str = "") -> None:
        """An event for it."""
        await self.send(Stimulus(source=SOURCE, type=f"{self.name}.note", data={"said": data}))

    async def rest(self, within_s: float = REST_S_MAX) -> History:
        """The history, once it is at rest."""
        return await rest(self.journal, self.acknowledged, within_s)

    async def violations(self, within_s: float = REST_S_MAX) -> list[Violation]:
        """What is wrong with it, once it is at rest and each of its wakes is accounted for."""
        history = await self.rest(within_s)
        await eventually(lambda: self.is_accounted_for(history), within_s, f"{self.name}: no wake is pending")
        evidence = await collect(
            self.ref,
            history,
            self.acknowledged,
            classes={tool.name: tool.effect_class for tool in TOOLS},
            notes=self.scene.notes,
            runtime=ToldRuntime(self.world, honour=True),
            arrivals=self.scene.receivers.arrivals,
        )
        return check(evidence)

    async def is_accounted_for(self, history: History) -> bool:
        """Whether memory shows every input, and of no wake that it is pending."""
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
