"""A record that cannot be read, of every register, in every service: its session refuses to run and says so, all others go on."""

from __future__ import annotations

import asyncio
import contextlib
from hashlib import sha256
from pathlib import Path

import pytest
from anchorwatch.bus.port import Message, Stored
from anchorwatch.codec import decode_anchor, pack
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.errors import Damaged, SessionQuarantined
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.records import FORMAT, Kind, Record
from anchorwatch.core.session.commands import Control
from anchorwatch.core.session.decide import decide
from anchorwatch.journal.reading import open_record
from anchorwatch.models.port import ProposedCall, Situation, StepDecision
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.topology.streams import journal_stream
from anchorwatch.topology.subjects import SessionSubjects
from anchorwatch_planner.workers import WAKES

from tests.sim.test_planner import agent, mesh_test
from tests.support.packs import Sink

FRESH_MS = 4_000_000_000_000
STOPS = (
    "input",
    *("created", "acquired", "turn_ended"),
    *("command", "step", "snapshot"),
    *("claim", "outcome"),
)
"""The kinds of record that a turn is decided on."""
SETTINGS: dict[str, float] = {"debounce_p0_s": 0, "debounce_p1_s": 0, "sweep_s": 5}
TELLS = ("artifact", "delivery_claimed", "delivery")
"""The kinds that no turn is decided on."""


def busy(situation: Situation) -> StepDecision:
    """A change, a look that keeps an artifact, one that tells people, a call that cannot be run; then rest."""
    steps = (
        (
            ProposedCall("set", {"item": f"run-{situation.run_id}"}),
            ProposedCall("look", {"item": "a", "mode": "artifact"}),
            ProposedCall("look", {"item": "b", "mode": "notify"}),
        ),
        (ProposedCall("set", None, raw="{", problem="no JSON"),),
    )
    done = len(situation.steps)
    return StepDecision(f"step {done + 1}", steps[done] if done < len(steps) else ())


async def open_mesh(mesh: SimMesh, tmp_path: Path) -> tuple[SessionRef, SessionRef]:
    Sink(tmp_path).set_world(at_ms=FRESH_MS)
    await mesh.open("observer", "planner", "executor", "notifier")
    spec = agent(tmp_path, busy, heartbeat_s=3600)
    bad, good = await mesh.session("bad", spec), await mesh.session("good", spec)
    await mesh.until_rest(bad, 1)
    await mesh.until_rest(good, 1)
    await asyncio.sleep(1)
    return bad, good


def records_of(mesh: SimMesh, ref: SessionRef) -> list[Stored]:
    prefix = SessionSubjects(ref).everything.removesuffix(">")
    return [
        each
        for each in mesh.server.stream(journal_stream()).messages.values()
        if each.subject.startswith(prefix)
    ]


def rot(mesh: SimMesh, stored: Stored) -> None:
    """One bit of the record, in its middle."""
    data = bytearray(stored.payload)
    data[len(data) // 2] ^= 1
    mesh.server.stream(journal_stream()).corrupt(stored.sequence, bytes(data))


def last_of_kind(mesh: SimMesh, ref: SessionRef, kind: str) -> Stored:
    return [each for each in records_of(mesh, ref) if readable(each) == kind][-1]


async def restart_planner(mesh: SimMesh) -> None:
    """Nothing of what it knew of its sessions outlives it."""
    await mesh.processes["planner-1"].kill()
    await mesh.processes["planner-1"].start()


async def quarantined(mesh: SimMesh, ref: SessionRef) -> tuple[Anchor, Record]:
    """The anchor of the session, once it says so."""

    async def there() -> bool:
        with contextlib.suppress(Damaged):
            return (await mesh.anchor(ref)).status == "quarantined"
        return False

    await mesh.until(there, within_s=40)
    return decode_anchor(last_of_kind(mesh, ref, Kind.QUARANTINED).payload)


async def stays_so(mesh: SimMesh, bad: SessionRef, good: SessionRef, behind: int) -> None:
    """It does not run, says so once, and takes what it is told; the other runs."""
    await mesh.say(good, "other", kind="trigger")
    await mesh.until_rest(good, 2)
    assert not (await mesh.say(bad, "later", "are you there?")).replayed
    await asyncio.sleep(60)
    kinds = [readable(each) for each in records_of(mesh, bad) if each.sequence > behind]
    assert Kind.ACQUIRED not in kinds
    assert Kind.COMMAND not in kinds
    assert kinds.count(Kind.QUARANTINED) == 1
    report = [each for each in records_of(mesh, bad) if ".sent." in each.subject and each.sequence > behind]
    told_of = [open_record(each).record.body["kinds"] for each in report]
    assert told_of.count(["session_quarantined"]) == 2, "one notification: its claim, and its end"
    state = await mesh.sessions.load(good, 0)
    with pytest.raises(SessionQuarantined):
        decide(
            state._replace(anchor=await mesh.anchor(bad)), Control(Kind.RESUMED, "ann", mesh.server.now_ms())
        )


@pytest.mark.parametrize("kind", STOPS)
def test_damage_to_a_decision_input_stops_only_its_session(tmp_path: Path, kind: str) -> None:
    async def body(mesh: SimMesh) -> None:
        bad, good = await open_mesh(mesh, tmp_path)
        if kind == Kind.SNAPSHOT:
            await mesh.sessions.snapshot(bad, await mesh.sessions.load(bad, 0), mesh.server.now_ms())
        damaged = last_of_kind(mesh, bad, kind)
        head = records_of(mesh, bad)[-1].sequence
        fence = (await mesh.anchor(bad)).fence.run
        rot(mesh, damaged)
        await restart_planner(mesh)
        await mesh.say(bad, "after", kind="trigger")
        anchor, record = await quarantined(mesh, bad)
        assert record.body["damage"]["sequence"] == damaged.sequence
        assert f"sequence {damaged.sequence}" in record.body["reason"]
        assert anchor.fence.run >= fence
        await stays_so(mesh, bad, good, head)

    mesh_test(1, body, **SETTINGS)


@pytest.mark.parametrize(
    "register",
    [
        "in.k-x",
        "p.anchor.change",
        "p.anchor.turn",
        "p.log",
        "p.cmd.default",
        *(f"fx.default.1.9.1.{name}" for name in ("gate", "claim", "done")),
    ],
)
@pytest.mark.parametrize("noise", [b"", b"noise", b"{}"])
def test_noise_in_a_decision_input_stops_only_its_session(
    tmp_path: Path, register: str, noise: bytes
) -> None:
    async def body(mesh: SimMesh) -> None:
        bad, good = await open_mesh(mesh, tmp_path)
        prefix = SessionSubjects(bad).everything.removesuffix(">")
        ack = await mesh.bus.publish(Message(prefix + register, noise))
        if register.endswith("claim"):
            # Nobody is told of a claim, and who knows the session has no use for it: it is seen by whoever reads the whole.
            await restart_planner(mesh)
        await mesh.say(bad, "after", kind="trigger")
        _, record = await quarantined(mesh, bad)
        assert record.body["damage"]["sequence"] == ack.sequence
        await stays_so(mesh, bad, good, ack.sequence)

    mesh_test(2, body, **SETTINGS)


@pytest.mark.parametrize("kind", TELLS)
def test_damage_outside_decision_inputs_stops_nothing(tmp_path: Path, kind: str) -> None:
    async def body(mesh: SimMesh) -> None:
        bad, good = await open_mesh(mesh, tmp_path)
        rot(mesh, last_of_kind(mesh, bad, kind))
        for register in ("late.1.1.1", "art.a-x", "sent.1-log-x", "ctl.wake"):
            await mesh.bus.publish(
                Message(SessionSubjects(bad).everything.removesuffix(">") + register, b"noise")
            )
        for process in mesh.processes.values():
            await process.kill()
            await process.start()
        await mesh.say(bad, "after", kind="trigger")
        anchor = await mesh.until_rest(bad, 2)
        assert anchor.last_run_outcome == "success"
        del good

    mesh_test(3, body, **SETTINGS)


def test_quarantined_session_command_waits_and_is_not_refused(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        bad, good = await open_mesh(mesh, tmp_path)
        await mesh.processes["executor-1"].kill()
        await mesh.say(bad, "go", kind="trigger")

        async def decided() -> bool:
            return [readable(each) for each in records_of(mesh, bad)].count(Kind.COMMAND) == 6

        await mesh.until(decided)
        rot(mesh, last_of_kind(mesh, bad, Kind.INPUT))
        await restart_planner(mesh)
        anchor, _ = await quarantined(mesh, bad)
        assert anchor.fence.run == anchor.run_id + 1
        await mesh.processes["executor-1"].start()
        head = records_of(mesh, bad)[-1].sequence
        await asyncio.sleep(120)
        kinds = [readable(each) for each in records_of(mesh, bad) if each.sequence > head]
        assert Kind.OUTCOME not in kinds
        assert Kind.CLAIM not in kinds
        assert [each["item"] for each in Sink(tmp_path).effects()].count("run-2") == 0
        del good

    mesh_test(4, body, **SETTINGS)


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_unreadable_last_anchors_never_lower_the_fence(tmp_path: Path, cut: int) -> None:
    async def body(mesh: SimMesh) -> None:
        bad, good = await open_mesh(mesh, tmp_path)
        await mesh.say(bad, "second", kind="trigger")
        before = await mesh.until_rest(bad, 2)
        await asyncio.sleep(1)
        anchors = [each for each in records_of(mesh, bad) if ".p.anchor." in each.subject]
        for stored in anchors[-cut:]:
            rot(mesh, stored)
        await restart_planner(mesh)
        anchor, _ = await quarantined(mesh, bad)
        assert anchor.fence.run >= before.fence.run
        assert anchor.run_id >= before.run_id
        assert anchor.generation >= before.generation
        assert anchor.constraints == before.constraints
        del good

    mesh_test(5, body, **SETTINGS)


def test_newer_record_is_left_to_a_newer_release_without_delay(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        bad, good = await open_mesh(mesh, tmp_path)
        subjects = SessionSubjects(bad)
        first = (await mesh.bus.publish(Message(subjects.input("k-new"), newer()))).sequence
        for subject in (
            subjects.command("default"),
            subjects.late(CallId(1, 1, 1)),
            subjects.sent("1-log-x"),
        ):
            await mesh.bus.publish(Message(subject, newer()))
        for n in range(300):
            await mesh.say(bad, f"b{n}", kind="trigger")
        await mesh.say(good, "other", kind="trigger")
        await mesh.until_rest(good, 2, within_s=10)
        await asyncio.sleep(60)
        assert (await mesh.anchor(bad)).status == "idle"
        assert Kind.ACQUIRED not in [
            readable(each) for each in records_of(mesh, bad) if each.sequence > first
        ]
        state = await (await mesh.bus.consumer(WAKES)).state()
        assert 0 < state.ack_pending <= 64, "what wakes it is left to others, and not acked"

    mesh_test(6, body, **SETTINGS)


def newer() -> bytes:
    """A record of the next format."""
    head = pack([FORMAT + 1, "kind", 1, "me", b"", pack({}), "more", b"\0" * 32])[:-34]
    return head + pack(sha256(head).digest())


def readable(stored: Stored) -> str:
    """The kind of the record, or none."""
    with contextlib.suppress(Damaged):
        return open_record(stored).record.kind
    return ""
