"""One run of the bench. Floors and mesh stand beside each other and take turns: what else the machine does strikes them all."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from tests.bench import machine, measure
from tests.bench.floor import Floor
from tests.bench.mesh import Mesh
from tests.bench.plan import Plan
from tests.bench.report import FLOOR_FSYNC, FLOOR_LAZY, MESH, MESH_LAZY, RESTATE, Results
from tests.bench.restate.had import NotHad, Restate, install
from tests.bench.restate.scene import RestateScene
from tests.bench.scene import Scene

Tell = Callable[[str], None]
# Beside the many: the sessions whose turns are measured one after the other.
SINGLE = ("alone", "history", "recovery")


async def run(plan: Plan, command: str, tell: Tell) -> Results:
    """Measure everything, on servers and in a directory that are gone afterwards."""
    facts = machine.facts()
    sessions = (*measure.session_names(plan), *SINGLE)
    with tempfile.TemporaryDirectory(prefix="aw-bench-") as path:
        directory = Path(path)
        restate = _restate(directory / "restate", tell) if plan.restate else None
        async with AsyncExitStack() as stack:
            tell("starting floors and mesh …")
            mesh = await stack.enter_async_context(Mesh(directory / "mesh", sessions, fsync=True))
            scenes: dict[str, Scene] = {
                FLOOR_LAZY: await stack.enter_async_context(Floor(directory / "lazy", fsync=False)),
                FLOOR_FSYNC: await stack.enter_async_context(Floor(directory / "fsync", fsync=True)),
                MESH: mesh,
            }
            if plan.lazy_mesh:
                lazy = Mesh(directory / "mesh-lazy", sessions, fsync=False)
                scenes[MESH_LAZY] = await stack.enter_async_context(lazy)
            if restate is not None:
                facts = {**facts, "restate": restate.version}
                beside = RestateScene(directory / "beside", restate)
                scenes[RESTATE] = await stack.enter_async_context(beside)
            rounds: dict[str, list[measure.Round]] = {name: [] for name in scenes}
            for number in range(1, plan.rounds + 1):
                tell(f"round {number} of {plan.rounds} …")
                for name, scene in scenes.items():
                    measured_s = plan.floor_measured_s if isinstance(scene, Floor) else plan.measured_s
                    rounds[name].append(await measure.measure_round(scene, plan, measured_s))
            tell(f"one session to turn {plan.history} …")
            history = await measure.history(mesh, plan)
            tell("executor killed between effect and record …")
            recovery = await measure.recovery(mesh, plan)
            counts = {name: measure.counts(scenes[name]) for name in (MESH, RESTATE) if name in scenes}
    return Results(command, facts, rounds, history, recovery, counts)


def _restate(directory: Path, tell: Tell) -> Restate | None:
    """Restate, where it can be had; nothing else of the run depends on it."""
    directory.mkdir()
    try:
        restate = install(directory)
    except NotHad as error:
        tell(f"without Restate: {error}")
        return None
    tell(f"Restate {restate.version}, had by: {restate.how}")
    return restate
