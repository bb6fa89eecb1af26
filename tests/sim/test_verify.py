"""Verifying what the mesh itself has written: whole as it is, and damaged wherever a byte or a record is not what it was."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from anchorwatch.core.errors import NotFound
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.core.session.commands import Control
from anchorwatch.core.session.decide import decide
from anchorwatch.journal.integrity.report import Examination
from anchorwatch.journal.integrity.verify import verify
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.topology.streams import journal_stream

from tests.sim.test_planner import mesh_test
from tests.sim.test_quarantine import SETTINGS, open_mesh, records_of


async def examined(mesh: SimMesh, ref: SessionRef) -> Examination:
    return await verify(mesh.bus, journal_stream(), mesh.sessions, ref)


async def a_life(mesh: SimMesh, tmp_path: Path, seed: int) -> SessionRef:
    """Turns, kills, a pause, a cancel, a snapshot."""
    chance = random.Random(seed)
    ref, _ = await open_mesh(mesh, tmp_path)

    async def order(kind: Kind) -> None:
        state = await mesh.sessions.load(ref, 0)
        now_ms = mesh.server.now_ms()
        await mesh.sessions.append(ref, state, decide(state, Control(kind, "ann", now_ms)), now_ms)

    for n in range(4):
        await mesh.say(ref, f"m{n}", "CRITICAL: mind the lock.", kind="message")
        await asyncio.sleep(chance.uniform(0, 0.2))
        victim = mesh.processes[chance.choice(sorted(mesh.processes))]
        await victim.kill()
        await asyncio.sleep(chance.choice([0, 0.2, 5]))
        await victim.start()
    await asyncio.sleep(60)
    await order(Kind.PAUSED)
    await order(Kind.RESUMED)
    await mesh.sessions.snapshot(ref, await mesh.sessions.load(ref, 0), mesh.server.now_ms())
    await mesh.say(ref, "last", kind="trigger")
    await asyncio.sleep(30)
    return ref


@pytest.mark.parametrize("seed", range(6))
def test_whatever_was_killed_what_the_mesh_wrote_is_whole(tmp_path: Path, seed: int) -> None:
    async def body(mesh: SimMesh) -> None:
        ref = await a_life(mesh, tmp_path, seed)
        found = await examined(mesh, ref)
        assert found.findings == []
        assert found.to_json()["whole"]
        assert found.to_json()["runs"]
        assert found.examiner.records == len(records_of(mesh, ref))

    mesh_test(seed, body, **SETTINGS)


def test_altered_byte_anywhere_is_the_only_finding(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        ref = await a_life(mesh, tmp_path, 1)
        stream, chance = mesh.server.stream(journal_stream()), random.Random(2)
        for stored in records_of(mesh, ref):
            changed = bytearray(stored.payload)
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
            stream.corrupt(stored.sequence, bytes(changed))
            found = await examined(mesh, ref)
            assert [each.sequence for each in found.open] == [stored.sequence]
            assert not found.to_json()["whole"]
            stream.corrupt(stored.sequence, stored.payload)
        assert (await examined(mesh, ref)).findings == []

    mesh_test(1, body, **SETTINGS)


def test_lost_record_anywhere_is_found(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        ref = await a_life(mesh, tmp_path, 3)
        stream = mesh.server.stream(journal_stream())
        records = records_of(mesh, ref)[1:]
        for stored in random.Random(4).sample(records, 12):
            stream.remove(stored.sequence)
            lost = [each for each in (await examined(mesh, ref)).open if each.trouble == "lost"]
            assert any(each.sequence <= stored.sequence <= each.through for each in lost)

    mesh_test(3, body, **SETTINGS)


def test_session_that_was_never_made_is_not_found(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await open_mesh(mesh, tmp_path)
        with pytest.raises(NotFound):
            await examined(mesh, SessionRef("default", "nobody"))

    mesh_test(4, body, **SETTINGS)
