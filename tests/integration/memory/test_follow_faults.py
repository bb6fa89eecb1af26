"""Late, repeated and reordered deliveries and lost acks leave the content unchanged."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest
import structlog
from anchorwatch.bus.port import Message
from anchorwatch.core.agents import AgentSpec
from anchorwatch.service.provisioning import ensure_topology
from anchorwatch.testing.bus import FaultKind, Faults, SimServer
from anchorwatch.testing.bus.loop import run
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.testing.process import LoopClock
from anchorwatch_memory.follow import Follower
from anchorwatch_memory.main import run_on
from anchorwatch_memory.projections import InlineProjections

from tests.unit.memory.test_store import LIFE, WHOLE

RATES = dict.fromkeys(
    (
        FaultKind.DUPLICATE_DELIVERY,
        FaultKind.DELAYED_DELIVERY,
        FaultKind.REORDERED_DELIVERY,
        FaultKind.LOST_DELIVERY_ACK,
        FaultKind.STALE_READ,
        FaultKind.ORPHANED_PULL,
        FaultKind.SLOW_FETCH,
    ),
    0.3,
)


@pytest.mark.parametrize("seed", range(20))
def test_content_is_independent_of_delivery_faults(seed: int) -> None:
    found, faults = run(_life(seed), seed)
    assert {name: rows for name, rows in found.items() if name not in ("progress", "timeline")} == {
        name: rows for name, rows in WHOLE.items() if name not in ("progress", "timeline")
    }
    assert sum(faults.counts.values()) > 10


async def _life(seed: int) -> tuple[dict[str, Any], Faults]:
    faults = Faults(random.Random(seed), RATES)
    server = SimServer(seed=seed, faults=faults)
    outside = server.connect(name="outside")
    await ensure_topology(outside)
    projections = InlineProjections()
    follower = Follower(
        server.connect(name="memory"),
        "JOURNAL_0",
        "aw.journal.0.>",
        "memory-1",
        projections,
        LoopClock(server),
        structlog.stdlib.get_logger("test"),
    )
    stopping = asyncio.Event()
    following = asyncio.create_task(follower.run(stopping))
    for stored in LIFE.messages:
        await outside.publish(Message(stored.subject, stored.payload))
        await asyncio.sleep(faults.rng.random() * 0.1)
    while follower.sequence < len(LIFE.messages):
        await follower.reach(len(LIFE.messages))
    stopping.set()
    await following
    await follower.close()
    dump = projections.store.dump()
    await projections.close()
    return dict(dump), faults


def test_simulated_service_survives_kills(tmp_path: Path) -> None:
    disposition = run(_in_a_mesh(tmp_path / "memory.db"), 7)
    assert disposition == ["pending"] * 30


async def _in_a_mesh(path: Path) -> list[str]:
    mesh = SimMesh(seed=7)
    await mesh.open(("memory", lambda context: run_on(context, InlineProjections(path))))
    ref = await mesh.session("fleet", AgentSpec(name="keeper", pack="fleet"))
    for n in range(30):
        receipt = await mesh.say(ref, f"k-{n}")
        if n % 7 == 0:
            await mesh.processes["memory-1"].kill()
            await mesh.processes["memory-1"].start()
    question = {"workspace": "default", "session": "fleet", "at_least": receipt.sequence}
    answer = json.loads(await mesh.bus.request("aw.rpc.memory.wakes", json.dumps(question).encode(), 10.0))
    await mesh.close()
    return [wake["disposition"] for wake in answer["result"]["data"] if wake["kind"] == "message"]
