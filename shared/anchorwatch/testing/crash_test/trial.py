"""One seed: a new mesh gets work while its processes are killed by plan, comes to rest, and is checked."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from anchorwatch.bus.port import Bus
from anchorwatch.core.records import Kind
from anchorwatch.edges import Edge
from anchorwatch.mesh.credentials import SERVICES, pack_services
from anchorwatch.packs import recording
from anchorwatch.packs.port import PackEnvironment
from anchorwatch.service.runtimes import pack_prefix, pack_settings
from anchorwatch.testing.checks import Evidence, Violation, check
from anchorwatch.testing.crash_test.actor import WORKSPACE, Actor, disturb
from anchorwatch.testing.crash_test.collect import collect, rest
from anchorwatch.testing.crash_test.kills import KillRunner, make_plan
from anchorwatch.testing.crash_test.mesh import CrashMesh
from anchorwatch.testing.crash_test.receivers import Receivers
from anchorwatch.testing.crash_test.subject import Subject
from anchorwatch.testing.crash_test.tried import Tried, tried
from anchorwatch.testing.harness import Kill
from anchorwatch.testing.live import DidNotHappen

ROUNDS = 8
PAUSE_S = 0.8
ROUND_S_MAX = 5.0
"""How long a round waits for rest. Only every second round waits, so that new work also arrives during a turn."""
PRESSING = 3
"""After this number of rounds with work and without a kill, each edge that is left is armed at its first reach."""
PATIENCE = 6
"""After this number of rounds with work and without a kill, the rest of the plan is given up."""
RANDOM_KILLS = 8
REST_S_MAX = 60.0
COUNTS = {"planner": 2, "executor": 2}
SETTINGS = {
    "ANCHORWATCH_MODEL": "rules",
    "ANCHORWATCH_PROBE_INTERVAL_S": "1",
    "ANCHORWATCH_DEBOUNCE_P0_S": "0.1",
    "ANCHORWATCH_DEBOUNCE_P1_S": "0.2",
    "ANCHORWATCH_SWEEP_S": "5",
}


@dataclass(frozen=True, slots=True)
class Trial:
    """The outcome of one seed. ``crashes``: processes that ended by themselves, and tracebacks in the logs.

    ``tried``: each granted tool; ``events``: the number of acknowledged events to which the session subscribes.
    """

    seed: int
    seconds: float
    reached: Counter[Edge]
    kills: int
    turns: int
    commands: int
    events: int
    tried: tuple[Tried, ...]
    violations: tuple[Violation, ...]
    crashes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.violations and not self.crashes

    def count(self, promise: str) -> int:
        """The number of violations of a promise."""
        return sum(each.promise == promise for each in self.violations)


async def run_trial(subject: Subject, seed: int, root: Path, on_kill: Callable[[Kill], None]) -> Trial:
    """Run one seed in the empty directory ``root``; no process of it is left.

    Raises:
        DidNotStart: the mesh does not start.
    """
    began = time.monotonic()
    notes, deaths = root / "calls.jsonl", root / "deaths"
    deaths.mkdir()
    services = (*SERVICES, *pack_services())
    with Receivers(root / "receivers") as receivers:
        mesh = CrashMesh(
            root,
            {service: COUNTS.get(service, 1) for service in services},
            {
                **SETTINGS,
                "ANCHORWATCH_NOTIFY": str(receivers.routes),
                recording.VARIABLE: str(notes),
                recording.KILL_VARIABLE: str(deaths),
            },
            kept=(pack_prefix(subject.pack.name),),
        )
        killer = KillRunner(mesh, make_plan(seed, mesh.instances, RANDOM_KILLS), on_kill)
        try:
            await mesh.open()
            async with mesh.bus() as bus:
                actor = Actor(mesh, bus, subject.agent)
                await _storm(subject, actor, killer, deaths)
                evidence, late = await _judge(subject, actor, notes, receivers)
        finally:
            mesh.close()
    violations = [*late, *check(evidence)]
    return Trial(
        seed=seed,
        seconds=time.monotonic() - began,
        reached=killer.reached,
        kills=len(killer.kills),
        turns=len(evidence.history.of_kind(Kind.TURN_ENDED)),
        commands=len(evidence.history.commands),
        events=len(evidence.events),
        tried=tried(subject.tools, evidence),
        violations=tuple(violations),
        crashes=(*killer.crashes, *mesh.faults()),
    )


async def _storm(subject: Subject, actor: Actor, killer: KillRunner, deaths: Path) -> None:
    """Give the session work while processes are killed, then without kills."""
    await killer.arm()
    killing = asyncio.create_task(killer.run(), name="kills")
    try:
        number = await _work(subject, actor, killer, killing)
    finally:
        killing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await killing
    # No process dies in a call any more.
    shutil.rmtree(deaths)
    await killer.disarm()
    await _repeat_without_kills(subject, actor, number)


async def _work(subject: Subject, actor: Actor, killer: KillRunner, killing: asyncio.Task[None]) -> int:
    """Send exercises until every planned kill has happened, or the work reaches no more; returns their number."""
    await actor.make()
    number = last = deaths = 0
    pressed = False
    while number < ROUNDS or (not killer.done and number - last < PATIENCE):
        number += 1
        for stimulus in await subject.exercise(_environment(subject, actor.bus), number):
            await actor.send(stimulus)
        await disturb(actor, number)
        await asyncio.sleep(PAUSE_S)
        if number % 2 == 0:
            with contextlib.suppress(DidNotHappen):
                await rest(actor.journal, actor.acknowledged, ROUND_S_MAX)
        if len(killer.kills) > deaths:
            last, deaths = number, len(killer.kills)
        elif number - last == PRESSING and not pressed:
            await killer.press()
            last, pressed = number, True
        if killing.done():
            killing.result()
    return number


async def _repeat_without_kills(subject: Subject, actor: Actor, before: int) -> None:
    """Repeat each exercise without kills: the death of an executor would hide its report of a call."""
    for number in range(before + 1, before + subject.exercises + 1):
        for stimulus in await subject.exercise(_environment(subject, actor.bus), number):
            await actor.send(stimulus)
        with contextlib.suppress(DidNotHappen):
            await rest(actor.journal, actor.acknowledged, ROUND_S_MAX)


async def _judge(
    subject: Subject, actor: Actor, notes: Path, receivers: Receivers
) -> tuple[Evidence, list[Violation]]:
    """The evidence once the session is at rest, and a violation if it does not come to rest."""
    late = []
    try:
        history = await rest(actor.journal, actor.acknowledged, REST_S_MAX)
    except DidNotHappen as error:
        late = [Violation("lost", f"{error}")]
        history = await actor.journal.history()
    runtime = await subject.pack.connect(_environment(subject, actor.bus))
    try:
        evidence = await collect(
            actor.ref,
            history,
            actor.acknowledged,
            classes={tool.name: tool.effect_class for tool in subject.pack.tools(subject.agent)},
            notes=notes,
            runtime=runtime,
            arrivals=receivers.arrivals,
        )
    finally:
        await runtime.close()
    return evidence, late


def _environment(subject: Subject, bus: Bus) -> PackEnvironment:
    return PackEnvironment(bus, WORKSPACE, subject.agent, pack_settings(subject.pack.name))
