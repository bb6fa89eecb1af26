"""A storm at one session holds up no other, in its workspace or in another: in virtual time, on a bus as slow as a real one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.bus.port import Message
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import Create
from anchorwatch.core.session.decide import decide
from anchorwatch.core.times import from_iso
from anchorwatch.models.port import StepDecision
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.topology import subjects

from tests.sim.test_planner import agent, mesh_test

STORM = 2_000
LARGE = 20_000
"""Bytes of data that do not stand in an input."""
LATENCY_S = (0.001, 0.003)
"""Each way: that a stored message is a sync of the disk is in it."""
EXTRA_S_MAX = 1.0


async def session(mesh: SimMesh, workspace: str, spec: Any) -> SessionRef:
    """A session named as its agent, in any workspace."""
    directory = await AgentDirectory.open(mesh.bus)
    made = await directory.apply(workspace, spec)
    ref = SessionRef(workspace, spec.name)
    now_ms = mesh.server.now_ms()
    create = Create(ref, made.at_version, (), (), now_ms, "outside")
    await mesh.sessions.append(ref, SessionState(), decide(SessionState(), create), now_ms)
    await directory.bind(ref, made.name)
    return ref


async def publish(
    mesh: SimMesh, workspace: str, source: str, numbers: range, priority: str, size: int = 0
) -> None:
    subject = subjects.event(workspace, source, "thing")
    content = json.dumps({"priority": priority, "blob": "x" * size}).encode()
    await asyncio.gather(
        *(mesh.bus.publish(Message(subject, content, message_id=f"{source}-{n}")) for n in numbers)
    )


async def reaction_s(
    mesh: SimMesh, ref: SessionRef, storm: SessionRef | None, count: int, size: int
) -> float:
    """How long after its one event the session's turn begins; behind a storm at another one."""
    runs = (await mesh.anchor(ref)).run_count
    if storm is not None:
        for start in range(0, count, 100):
            await publish(mesh, storm.workspace, storm.session, range(start, start + 100), "P1", size)
    asked_ms = mesh.server.now_ms()
    await publish(mesh, ref.workspace, ref.session, range(1), "P0")
    await mesh.until_rest(ref, runs + 1, within_s=600)
    begun = mesh.history(ref).of_kind(Kind.ACQUIRED)[runs].anchor.turn
    assert begun is not None
    return (from_iso(begun.started_at) - asked_ms) / 1000


@pytest.mark.parametrize(
    ("others", "count", "size"), [("default", STORM, 0), ("elsewhere", STORM, 0), ("default", 500, LARGE)]
)
def test_event_after_a_storm_of_two_thousand_is_not_delayed(
    tmp_path: Path, others: str, count: int, size: int
) -> None:
    measured: dict[bool, float] = {}

    def run(*, stormy: bool) -> None:
        async def body(mesh: SimMesh) -> None:
            await mesh.open("observer", "planner")
            spec = agent(tmp_path, lambda _: StepDecision("looked"), heartbeat_s=3600)
            make = {
                name: spec.model_copy(update={"name": name, "subscriptions": (f"{name}.>",)})
                for name in ("calm", "busy")
            }
            calm = await session(mesh, "default", make["calm"])
            busy = await session(mesh, others, make["busy"])
            await mesh.until_rest(calm, 1)
            await mesh.until_rest(busy, 1)
            measured[stormy] = await reaction_s(mesh, calm, busy if stormy else None, count, size)

        mesh_test(1, body, latency_s=LATENCY_S)

    run(stormy=False)
    run(stormy=True)
    assert measured[True] <= measured[False] + EXTRA_S_MAX
