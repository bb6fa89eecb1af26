"""A record that memory cannot enter for a fault of its own has a letter, and nothing behind it waits."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.journal.reading import Opened
from anchorwatch.service.context import ServiceContext
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.topology.subjects import RPC_MEMORY
from anchorwatch_memory.fold import wakes
from anchorwatch_memory.main import run_on
from anchorwatch_memory.projections import InlineProjections

from tests.support.letters import in_state, mesh_test, only_letter, order
from tests.support.packs import bench_agent


async def memory(context: ServiceContext) -> None:
    """Memory with its projections in place, since virtual time has no threads."""
    await run_on(context, InlineProjections())


async def ask(mesh: SimMesh, verb: str, **params: Any) -> Any:
    payload = json.dumps({"workspace": "default", **params}).encode()
    return json.loads(await mesh.bus.request(RPC_MEMORY.at(verb=verb), payload, 5.0))["result"]


class Faulty:
    """Entering inputs, with a fault that one of them brings to light while it is not mended."""

    def __init__(self, id_: str) -> None:
        self._id = id_
        self._accept = wakes.accept
        self.mended = False

    def accept(self, db: sqlite3.Connection, opened: Opened) -> None:
        if opened.register.path[1] == self._id and not self.mended:
            raise AssertionError("a fault of the fold")
        self._accept(db, opened)


def test_unindexable_record_is_shown_and_a_thousand_later_are_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty = Faulty("bad")

    async def body(mesh: SimMesh) -> None:
        await mesh.open(("memory", memory))
        bad = await mesh.session("bad", bench_agent(tmp_path))
        good = await mesh.session("good", bench_agent(tmp_path))
        sequence = (await mesh.say(bad, "bad")).sequence
        for n in range(1_000):
            await mesh.say(good, f"m{n}")

        async def all_in() -> bool:
            found = await ask(mesh, "session", session="good", at_least=sequence + 1_000)
            return bool(found["pending_inputs"] == 1_000)

        await mesh.until(all_in)
        await mesh.until(in_state(mesh.bus, "open"), within_s=10)
        letter = await only_letter(mesh.bus)
        assert letter is not None
        assert (letter.address.letter_id, letter.address.session) == (f"memory-journal0-{sequence}", "bad")
        (line,) = [
            entry
            for entry in (await ask(mesh, "timeline", session="bad", limit=100))["data"]
            if entry["kind"] == "fault"
        ]
        assert line["sequence"] == sequence
        assert "AssertionError" in line["why"]
        await mesh.processes["memory-1"].kill()
        await mesh.processes["memory-1"].start()
        await order(mesh.bus, letter, "retry", mesh.server.now_ms())
        await mesh.until(in_state(mesh.bus, "open", 2), within_s=30)
        faulty.mended = True
        await order(mesh.bus, letter, "retry", mesh.server.now_ms(), "again")
        await mesh.until(in_state(mesh.bus, "done"), within_s=30)
        assert (await ask(mesh, "session", session="bad"))["pending_inputs"] == 1

    monkeypatch.setattr("anchorwatch_memory.fold.wakes.accept", faulty.accept)
    mesh_test(body)
