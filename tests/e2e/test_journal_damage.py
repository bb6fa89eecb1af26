"""A journal whose end its server lost: nothing starts until a person accepts that, and nothing of it runs a second time."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from anchorwatch.bus.port import Bus
from anchorwatch.core.names import SessionRef
from anchorwatch.journal.history import History
from anchorwatch.journal.truncation import standing_hold
from anchorwatch.mesh.credentials import SERVICES
from anchorwatch.testing.live import Follower, until
from anchorwatch.topology.streams import journal_stream

from tests.e2e.meshes import WORKSPACE, LiveMesh, running
from tests.support.openapi import check_value
from tests.support.packs import Sink, bench_agent
from tests.support.scripted import order

ROOT = Path(__file__).parents[2]
TOOLS = ("look", "set", "build", "fire")
EFFECTS = ("set", "build", "fire")
STILL_S = 20.0
"""Long enough for a sweep, a redelivery and a lease: what is not held would have run by then."""
QUICK = {"ANCHORWATCH_DEBOUNCE_P0_S": "0", "ANCHORWATCH_SWEEP_S": "2", "ANCHORWATCH_LEASE_S": "3"}


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[LiveMesh]:
    """Without the yard; its services know the packs of the tests, as they know any that is installed."""
    installed = tmp_path / "installed"
    (installed / "scripted-1.dist-info").mkdir(parents=True)
    (installed / "scripted-1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: scripted\nVersion: 1\n"
    )
    entry = "[anchorwatch.packs]\nforgetful = tests.support.scripted:FORGETFUL\n"
    (installed / "scripted-1.dist-info" / "entry_points.txt").write_text(entry)
    paths = {"PYTHONPATH": os.pathsep.join([str(installed), str(ROOT)])}
    only = [word for name in SERVICES for word in ("--only", name)]
    with running(tmp_path / "mesh", "--bare", *only, settings={**QUICK, **paths}) as started:
        yield started


class Teller:
    """A session of the pack that does what it is told, and the provider that does everything as often as it is asked."""

    def __init__(self, mesh: LiveMesh, bus: Bus, name: str, directory: Path) -> None:
        self.mesh, self.name = mesh, name
        self.world = Sink(directory / name)
        self.spec = bench_agent(directory / name, name=name, pack="forgetful", subscriptions=(), version=0)
        self.journal = Follower(bus, SessionRef(WORKSPACE, name))

    def make(self) -> None:
        with self.mesh.api as api:
            api.put(f"/api/agents/{self.name}", self.spec.model_dump(mode="json"))
            api.post("/api/sessions", {"name": self.name, "agent": self.name})

    def say(self, tool: str) -> None:
        with self.mesh.api as api:
            content = order([(tool, f"{self.name}-{tool}", "ok")])
            api.post(f"/api/sessions/{self.name}/inputs", {"content": content, "priority": "P0"})

    async def at_rest(self, runs: int) -> History:
        async def look() -> History | None:
            history = await self.journal.history()
            anchor = history.anchors[-1].anchor if history.anchors else None
            rests = anchor and anchor.status == "idle" and anchor.run_count >= runs
            return history if rests else None

        return await until(look, f"{self.name} is at rest after {runs} runs", 60)

    @property
    def done(self) -> Counter[str]:
        return Counter(each["tool"] for each in self.world.effects())


def newest_block(mesh: LiveMesh) -> Path:
    blocks = mesh.data.nats_store.glob(f"jetstream/*/streams/{journal_stream()}/msgs/*.blk")
    return max(blocks, key=lambda block: int(block.stem))


def flip(block: Path, at: int) -> None:
    content = bytearray(block.read_bytes())
    content[at] ^= 1
    block.write_bytes(content)


def doctor(mesh: LiveMesh) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "anchorwatch.cli.main", "doctor", "--data-dir", str(mesh.data.root)],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    return done.returncode, done.stdout


async def test_lost_effects_do_not_run_again(mesh: LiveMesh, tmp_path: Path) -> None:
    async with mesh.bus() as bus:
        teller = Teller(mesh, bus, "teller", tmp_path / "worlds")
        teller.make()
        before = await teller.at_rest(1)
        for number, tool in enumerate(TOOLS, 2):
            teller.say(tool)
            before = await teller.at_rest(number)
        last = (await bus.stream_state(journal_stream())).last_sequence
    once = Counter(dict.fromkeys(EFFECTS, 1))
    assert teller.done == once
    mesh.kill_everything()
    block = newest_block(mesh)
    content = block.read_bytes()
    # The record after the first message: all that follows is cut off, the message is not.
    flip(block, content.index(b"acquired", content.index(b"teller-look")))
    mesh.start()
    await asyncio.sleep(STILL_S)

    assert teller.done == once
    code, said = doctor(mesh)
    assert (code, "the journal lost its end" in said) == (1, True)
    async with mesh.bus() as bus:
        hold = await standing_hold(bus, journal_stream())
    [gap] = hold.gaps
    assert gap.first > before.inputs[1].sequence
    assert gap.through >= last
    with mesh.api as api:
        [row] = api.get("/api/sessions")["data"]
        assert [each["by"] for each in row["held"]] == ["journal"]
        assert api.get("/api/journal")["sessions"] == [{"workspace": WORKSPACE, "session": "teller"}]
    assert "journal accept" in mesh.run("status")
    listed = mesh.run("journal", "accept", "--dry-run")
    assert f"sequences {gap.first} to {gap.through} are lost" in listed
    mesh.run("journal", "accept", "--yes", "--note", "the disk was replaced")
    await asyncio.sleep(STILL_S / 2)

    assert teller.done == once
    async with mesh.bus() as bus:
        teller = Teller(mesh, bus, "teller", tmp_path / "worlds")
        history = await teller.journal.history()
        states = {each.outcome.tool: each.outcome.state for each in history.outcomes}
        assert states == dict.fromkeys(EFFECTS, "unknown")
        assert min(each.sequence for each in history.outcomes) > gap.through
        mesh.run("journal", "verify", "teller")
        for tool in EFFECTS:
            call = next(each.outcome.call for each in history.outcomes if each.outcome.tool == tool)
            mesh.run("effects", "resolve", f"teller/{call}", "done", "--note", "seen in the world")
        teller.say("set")

        async def done_again() -> bool:
            return teller.done == once + Counter({"set": 1})

        # The verdicts may start a turn of their own before.
        await until(done_again, "the session works again", 60)
    assert doctor(mesh)[0] == 0


async def test_gap_is_named_by_every_tool_and_not_reused(mesh: LiveMesh, tmp_path: Path) -> None:
    names = ("a", "b", "c")
    async with mesh.bus() as bus:
        tellers = {name: Teller(mesh, bus, name, tmp_path / "worlds") for name in names}
        for teller in tellers.values():
            teller.make()
            await teller.at_rest(1)
        mesh.run("pause", "b")
        with mesh.api as api:
            for number in range(120):
                api.post(
                    "/api/sessions/b/inputs", {"content": f"the input {number} of many", "priority": "P1"}
                )
        last = (await bus.stream_state(journal_stream())).last_sequence
    mesh.end()
    block = newest_block(mesh)
    content = bytearray(block.read_bytes())
    middle = content.index(b"the input 60 of many")
    content[middle : middle + 4096] = bytes(4096)
    block.write_bytes(content)
    mesh.start()

    async with mesh.bus() as bus:
        hold = await standing_hold(bus, journal_stream())
        [gap] = hold.gaps
        said = f"sequences {gap.first} to {gap.through}"
        assert gap.through == last
        assert (await bus.stream_state(journal_stream())).last_sequence > last
    code, text = doctor(mesh)
    assert (code, said in text) == (1, True)
    with mesh.api as api:
        assert int(api.post("/api/sessions/a/inputs", {"content": "[]"})["sequence"]) > last
        loss = api.get("/api/journal")
        check_value("JournalLoss", loss)
        concerned = {each["session"] for each in loss["sessions"]}
        assert "b" in concerned
        for name in names:
            found = api.get(f"/api/sessions/{name}/verify")["findings"]
            lost = [(each["sequence"], each["through"]) for each in found if each["trouble"] == "lost"]
            assert lost == ([(gap.first, gap.through)] if name in concerned else [])
        remedies = api.get("/api/sessions/b/repair")["remedies"]
        assert (gap.first, gap.through) in [(each["sequence"], each["through"]) for each in remedies]
    mesh.run("journal", "accept", "--yes")
    for name in names:
        mesh.run("journal", "verify", name)
    code, text = doctor(mesh)
    assert code == 0, text
