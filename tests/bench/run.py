"""One run of the bench: floors before, the mesh, floors after."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.bench import machine, measure
from tests.bench.mesh import Mesh
from tests.bench.plan import Plan
from tests.bench.report import Results

Tell = Callable[[str], None]
# Beside the many: the sessions whose turns are measured one after the other.
SINGLE = ("alone", "history", "recovery")


async def run(plan: Plan, command: str, tell: Tell) -> Results:
    """Measure everything, on servers and in a directory that are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="aw-bench-") as name:
        directory = Path(name)
        facts = machine.facts()
        lazy: list[measure.Speed] = []
        fsync: list[measure.Speed] = []

        async def floors(when: str) -> None:
            for durable, into in ((False, lazy), (True, fsync)):
                tell(f"floor, {'fsync' if durable else 'lazy fsync'} ({when}) …")
                into.append(await measure.floor(directory / f"floor-{when}-{durable}", plan, fsync=durable))

        await floors("before")
        sessions = measure.session_names(plan)
        async with Mesh(directory / "mesh", (*sessions, *SINGLE), fsync=True) as mesh:
            tell(f"mesh, {plan.sessions} sessions …")
            speed = await measure.speed(mesh, sessions, plan, plan.warm_s, plan.measured_s)
            tell(f"mesh, one session to turn {plan.history} …")
            history = await measure.history(mesh, plan)
            tell("mesh, executor killed between effect and record …")
            recovery = await measure.recovery(mesh, plan)
            counts = measure.counts(mesh)
        mesh_lazy = None
        if plan.lazy_mesh:
            tell("mesh, lazy fsync …")
            async with Mesh(directory / "mesh-lazy", (*sessions, *SINGLE), fsync=False) as mesh:
                mesh_lazy = await measure.speed(mesh, sessions, plan, plan.warm_s, plan.measured_s / 2)
        if plan.floors_after:
            await floors("after")
    return Results(command, facts, lazy, fsync, speed, mesh_lazy, history, recovery, counts)
