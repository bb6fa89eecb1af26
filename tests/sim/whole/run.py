"""One run of the whole mesh: drawn from a seed, from the first session to rest, with what it left behind."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from unittest.mock import patch

import structlog
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.edges import Edge
from anchorwatch.packs import registry
from anchorwatch.testing import storm
from anchorwatch.testing.bus import Faults
from anchorwatch.testing.bus.clock import EPOCH_MS, SimClock
from anchorwatch.testing.bus.loop import run as run_virtual
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.testing.process import Life
from anchorwatch_planner import main as planner
from anchorwatch_planner import turn

from tests.sim.whole import model, provider, receivers
from tests.sim.whole.judge import judge
from tests.sim.whole.pack import HEARTBEAT_S, WorldPack, world_agent
from tests.sim.whole.people import People
from tests.sim.whole.rest import is_quiet, is_slowed, letters
from tests.sim.whole.services import TOKEN, Disk, Front
from tests.sim.whole.wants import SPAN_S, Wants

TURNS_MIN = 3
REST_S_MAX = 400.0
LIMIT_S = 40_000.0
LIMITED, SHARING = 0.4, 0.15
SILENT = structlog.wrap_logger(
    structlog.ReturnLogger(),
    processors=[],
    wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL),
)

K = TypeVar("K", bound=str)


@dataclass
class Report:
    """What a run came to. ``digest``: of the whole journal, byte for byte."""

    seed: int
    violations: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    edges: Counter[Edge] = field(default_factory=Counter)
    turns: int = 0
    records: int = 0
    crashes: list[str] = field(default_factory=list)
    digest: str = ""


class Scene:
    """The mesh of one seed, its world, and the people around it."""

    def __init__(self, seed: int, log: structlog.stdlib.BoundLogger) -> None:
        chance = self.chance = random.Random(f"whole mesh {seed}")
        self.seed = seed
        self.sharing = random.Random(f"sharing {seed}").random() < SHARING
        self.plan = storm.draw(chance, tuple(Edge), SPAN_S)
        faults = Faults(random.Random(f"faults {seed}"), self.plan.rates)
        self.mesh = SimMesh(
            seed=seed,
            faults=faults,
            # A minute ends while people want things: what is scheduled by the minute comes once, or twice.
            clock=SimClock(EPOCH_MS + 60_000 - round(chance.uniform(0.2, SPAN_S) * 1000)),
            log=log,
            token=TOKEN,
            lease_s=6.0,
            sweep_s=10.0,
            probe_interval_s=5.0,
            heartbeat_s=HEARTBEAT_S,
            debounce_p0_s=chance.choice((0.0, 0.5)),
            debounce_p1_s=chance.choice((0.0, 1.0)),
            model_timeout_s=8.0,
            dead_letter_tries=random.Random(f"letters {seed}").choice((8, 1)),
            **self._draw_limits(),
            context_tokens_max=chance.choice((30_000, 30_000, 1_200)),
        )
        self.provider = provider.Provider(
            random.Random(f"provider {seed}"), _troubles(chance, provider.TROUBLES), self.mesh.server.now_ms
        )
        self.models = model.Models(random.Random(f"model {seed}"), _troubles(chance, model.TROUBLES))
        self.receivers = receivers.Receivers(
            random.Random(f"receivers {seed}"), _troubles(chance, receivers.TROUBLES)
        )
        self.disk, self.front = Disk(), Front()
        self.storm = storm.Storm(self.mesh, random.Random(f"storm {seed}"), self.plan)
        self.refs: list[SessionRef] = []
        self._agent = world_agent(sharing=self.sharing)
        self._errands: set[asyncio.Task[None]] = set()
        registry.register(WorldPack(self.provider, seed, calls_max=chance.choice((1, 2, 3))))

    def _draw_limits(self) -> dict[str, Any]:
        """Some runs have an agent that may not begin turns as it likes, or keeps little of what waits."""
        chance = random.Random(f"limits {self.seed}")
        drawn = {
            "min_interval_s": chance.choice((0.0, 0.0, 3.0, 8.0)),
            "turns_per_hour": chance.choice((0, 0, 0, 600)),
            "turn_burst": chance.choice((1, 2)),
            "waiting_max": chance.choice((10_000, 2, 2)),
        }
        return drawn if chance.random() < LIMITED else {}

    @property
    def people(self) -> People:
        return self._people

    async def open(self) -> None:
        """Start every service, and make the sessions; nothing goes wrong yet."""
        mesh = self.mesh
        mesh.server.faults.enabled = False
        plan = partial(planner.run, build=self.models.build)
        await mesh.open(
            "observer",
            *[("planner", plan)] * self.chance.choice((1, 2)),
            *["executor"] * self.chance.choice((1, 2)),
            ("memory", self.disk.run),
            ("notifier", self.receivers.run),
            *[("gateway", self.front.run)] * self.chance.choice((1, 2)),
        )
        gateways = [name for name in mesh.processes if name.startswith("gateway-")]
        self._people = People(self.front, gateways, mesh.bus, random.Random(f"people {self.seed}"))
        self.storm.begin()
        if self.chance.random() < 0.3:
            self.mesh.watch.plan(
                Edge.EXECUTOR_CLAIM_BEFORE, self.chance.choice((1, 2, 4)), self._hold_at_a_claim
            )
        mesh.server.faults.enabled = True
        names = [f"s{n}" for n in range(self.chance.choice((1, 1, 2, 3)))]
        self.refs = await self._people.set_up(self._agent, names)

    def _hold_at_a_claim(self, life: Life) -> None:
        """Stop an executor that is about to claim; before it goes on, a person has paused the sessions for a while."""
        life.stop()

        async def pause() -> None:
            stopped_s = asyncio.get_running_loop().time()
            for ref in self.refs:
                await self._people.order(ref, "pause", f"claim-{ref.session}-pause")
            if asyncio.get_running_loop().time() - stopped_s >= self.mesh.settings.lease_s:
                # Orders that were retried for so long kept it silent for a lease: others may replace it.
                self.storm.deaths.add(life.identity.execution_id)
            life.resume()
            await asyncio.sleep(1.0)
            for ref in self.refs:
                await self._people.order(ref, "resume", f"claim-{ref.session}-resume")

        self._errands.add(self.mesh.outside(pause()))

    async def work(self) -> None:
        """Let people and the world want things, while the storm blows."""
        wants = Wants(self.chance, self.mesh, self._people, self.provider, self._agent.name, self.refs)
        await wants.all()

    async def settle(self) -> bool:
        """End all faults, and wait until nothing moves; False: it does not come to rest."""
        if not (self.storm.counts or self.mesh.server.faults.counts):
            await self.storm.strike_once()
        await self.storm.calm()
        for each in (self.provider, self.models, self.receivers):
            each.calm()
        await asyncio.gather(*self._errands)
        number = 0
        while self.turns < TURNS_MIN:
            number += 1
            await self._people.trigger(self.refs[0], f"more-{number}")
            if not await self._rest():
                await self._retry_letters(f"retry-{number}")
        await self._rest()
        await self._retry_letters("retry")
        await self._rest()
        for ref, call in self._unknown():
            key = self.mesh.history(ref).claims_of(call)[0].claimed.effect_key
            note = self.provider.notes.get(key)
            await self._people.settle(f"{ref.session}/{call}", done=note is not None and note.done > 0)
        return await self._rest() or await self._rest_of_the_slowed()

    async def _rest_of_the_slowed(self) -> bool:
        """What waits in a session without progress waits ever longer, and goes along with what a person wants at once."""
        slowed = [ref for ref in self.refs if is_slowed(self.mesh, ref)]
        for ref in slowed:
            await self._people.trigger(ref, f"slowed-{ref.session}")
        return bool(slowed) and await self._rest()

    async def _retry_letters(self, key: str) -> None:
        for number, letter in enumerate(letters(self.mesh, "open")):
            await self._people.retry(letter.address.letter_id, f"{key}-{number}")

    def _unknown(self) -> list[tuple[SessionRef, CallId]]:
        """The effects that are unknown, and that nobody has settled."""
        found = []
        for ref in self.refs:
            last = {each.outcome.call: each.outcome.state for each in self.mesh.history(ref).outcomes}
            found += [(ref, call) for call, state in last.items() if state == "unknown"]
        return found

    @property
    def turns(self) -> int:
        """Turns that ended, in all sessions."""
        return sum(anchor.run_count for anchor in map(self.mesh.anchor_now, self.refs) if anchor)

    async def _rest(self) -> bool:
        calm = 0
        for _ in range(round(REST_S_MAX)):
            await asyncio.sleep(1.0)
            calm = calm + 1 if is_quiet(self.mesh, self.refs) else 0
            if calm == 3:
                return True
        return False


def _troubles(chance: random.Random, kinds: Sequence[K]) -> dict[K, float]:
    """Often none; else a few kinds, each with its rate."""
    drawn = chance.sample(sorted(kinds), chance.choice((0, 0, 1, 2)))
    return {kind: chance.choice((0.05, 0.2, 0.5)) for kind in drawn}


def simulate(seed: int, log: structlog.stdlib.BoundLogger = SILENT) -> Report:
    """Run the whole mesh by this seed; the same seed gives the same run, byte for byte."""
    report = Report(seed)

    async def main() -> None:
        scene = Scene(seed, log)
        try:
            await scene.open()
            await scene.work()
            rested = await scene.settle()
            _fill(report, scene, rested=rested)
        finally:
            await scene.mesh.close()
            await scene.disk.projections.close()

    # Few turns fit into a run; so that snapshots matter, some runs take them often.
    often = random.Random(f"snapshots {seed}").choice((8, turn.SNAPSHOT_AGE))
    with patch.object(turn, "SNAPSHOT_AGE", often):
        run_virtual(main(), seed, time_limit_s=LIMIT_S)
    return report


def _fill(report: Report, scene: Scene, *, rested: bool) -> None:
    mesh, faults = scene.mesh, scene.mesh.server.faults
    report.faults.update({str(kind): count for kind, count in faults.counts.items() if kind in storm.RATES})
    report.faults.update(scene.storm.counts)
    for each in (scene.provider, scene.models, scene.receivers):
        report.faults.update(each.struck)
    report.edges.update(mesh.watch.reached)
    report.turns = scene.turns
    report.crashes = [f"{instance}: {error!r}" for instance, error in mesh.crashes]
    report.violations = judge(scene, rested=rested)
    digest = hashlib.sha256()
    for stored in mesh.journal():
        digest.update(f"{stored.sequence} {stored.subject} {stored.time_ms}\0".encode() + stored.payload)
    report.records, report.digest = len(mesh.journal()), digest.hexdigest()
