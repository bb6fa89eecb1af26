"""Messages that the server's disk has damaged: the server's answers, and the mesh's reaction."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from anchorwatch.bus import jetstream
from anchorwatch.bus.port import Expect, Message, Unreadable, WrongLastSequence
from anchorwatch.core.effect.state import Claimed, EffectState, Owner
from anchorwatch.core.errors import Damaged
from anchorwatch.core.names import CallId
from anchorwatch.journal.blocks import BlockJournal
from anchorwatch.journal.heads import head_of
from anchorwatch.journal.integrity.repair import Order, Repairer
from anchorwatch.journal.integrity.verify import verify
from anchorwatch.journal.quarantine import quarantine
from anchorwatch.service.provisioning import ensure_topology
from anchorwatch.topology.streams import StreamSpec, journal_stream

from tests.support.journal_writer import P1, P2, JournalWriter, acquire, step
from tests.support.nats_server import NatsServer, running_server

STREAM = StreamSpec("S", ("s.>",), atomic_batches=True)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with running_server(tmp_path) as made:
        yield made


def damage(server: NatsServer, stream: str, payload: bytes) -> None:
    """Change one byte of a stored payload, while the server is down."""
    server.stop()
    blocks = server.directory.rglob(f"{stream}/msgs/*.blk")
    [block] = (path for path in blocks if payload in path.read_bytes())
    content = bytearray(block.read_bytes())
    content[content.index(payload)] ^= 1
    block.write_bytes(content)
    server.start()


@pytest.mark.parametrize("first", [True, False], ids=["of the first subject", "of a later subject"])
async def test_unreadable_last_message_affects_its_subject_only(server: NatsServer, *, first: bool) -> None:
    bus = await jetstream.connect(server.url, user=None, password=None, name="n")
    await bus.ensure_stream(STREAM)
    for n, subject in enumerate(("s.bad", "s.well") if first else ("s.well", "s.bad")):
        await bus.publish(Message(subject, b"before", f"b-{n}"))
        await bus.publish(Message(subject, f"the last of {subject}".encode(), f"l-{n}"))
    await bus.close()
    damage(server, STREAM.name, b"the last of s.bad")
    bus = await jetstream.connect(server.url, user=None, password=None, name="n")
    try:
        for filters in (["s.bad"], ["s.*"], ["s.well", "s.bad"], ["s.none", "s.bad"]):
            with pytest.raises(Damaged, match=r"that matches s\..* cannot be read"):
                await bus.last("S", filters)
        well = await bus.last("S", ["s.well"])
        assert [each.payload for each in well.messages] == [b"the last of s.well"]
        nothing = await bus.last("S", ["s.none"])
        assert (nothing.messages, nothing.up_to) == ((), well.up_to)
        with pytest.raises(Damaged):
            await bus.range("S", "s.bad", 1, reach=0)
        assert len((await bus.range("S", "s.bad", 1, limit=1)).messages) == 1
    finally:
        await bus.close()


@pytest.mark.parametrize("last", ["well", "bad"], ids=["others follow", "none follows"])
async def test_session_with_an_unreadable_last_record_does_not_run(server: NatsServer, last: str) -> None:
    bus = await jetstream.connect(server.url, user=None, password=None, name="n")
    await ensure_topology(bus)
    heads: dict[str, int] = {}
    for session in sorted(("bad", "well"), key=last.__eq__):
        writer = JournalWriter(bus, session)
        state = await writer.created()
        heads[session] = (await writer.do(state, acquire(state, f"planner-1:{session}"))).head
    await bus.close()
    damage(server, journal_stream(), b'"execution_id":"planner-1:bad"')
    bus = await jetstream.connect(server.url, user=None, password=None, name="n")
    try:
        bad, well = JournalWriter(bus, "bad"), JournalWriter(bus, "well")
        with pytest.raises(Damaged):
            await bad.load()
        assert (await well.load()).head > 0
        found = await verify(bus, journal_stream(), bad.journal, bad.ref)
        lost = heads["bad"]
        assert [(each.trouble, each.sequence, each.through) for each in found.open] == [("lost", lost, lost)]
        assert found.unloadable
        assert (await verify(bus, journal_stream(), well.journal, well.ref)).open == []
    finally:
        await bus.close()


async def test_unreadable_earlier_input_is_found_and_named(server: NatsServer) -> None:
    bus = await jetstream.connect(server.url, user=None, password=None, name="n")
    await ensure_topology(bus)
    writer = JournalWriter(bus, "s")
    await writer.created()
    receipts = [await writer.say(f"k{n}", f"the input {n}") for n in range(3)]
    await bus.close()
    damage(server, journal_stream(), b"the input 1")
    bus = await jetstream.connect(server.url, user=None, password=None, name="n")
    try:
        writer = JournalWriter(bus, "s")
        found = await verify(bus, journal_stream(), writer.journal, writer.ref)
        lost = receipts[1].sequence
        assert [(each.trouble, each.sequence, each.through) for each in found.open] == [("lost", lost, lost)]
    finally:
        await bus.close()


async def test_fence_on_an_unreadable_last_message_compares_zero(
    server: NatsServer,
) -> None:
    bus = await jetstream.connect(server.url, user=None, password=None, name="n")
    await bus.ensure_stream(STREAM)
    first = await bus.publish(Message("s.p.a", b"before"))
    last = await bus.publish(Message("s.p.b", b"the last of all"))
    await bus.close()
    damage(server, STREAM.name, b"the last of all")
    bus = await jetstream.connect(server.url, user=None, password=None, name="n")
    try:
        for subject in ("s.p.>", "s.p.b"):
            for sequence in (first.sequence, last.sequence):
                with pytest.raises(WrongLastSequence):
                    await bus.publish(Message("s.p.a", b"x", expect=Expect(subject, sequence)))
        behind = await bus.publish(Message("s.p.a", b"behind", expect=Expect("s.p.>", 0)))
        with pytest.raises(WrongLastSequence):
            await bus.publish(Message("s.p.a", b"x", expect=Expect("s.p.>", 0)))
        await bus.publish(Message("s.p.a", b"y", expect=Expect("s.p.>", behind.sequence)))
        with pytest.raises(Damaged):
            await bus.last("S", ["s.p.>"])
        head = await head_of(bus, "S", "s.p.>")
        assert (head.sequence, head.damage) == (behind.sequence + 1, None)
    finally:
        await bus.close()


@pytest.mark.parametrize("lost", ["anchor", "log"])
async def test_lost_planner_record_is_quarantined_and_repaired_once(server: NatsServer, lost: str) -> None:
    bus = await jetstream.connect(server.url, user=None, password=None, name="n")
    await ensure_topology(bus)
    writer = JournalWriter(bus, "s")
    state = await writer.created()
    if lost == "log":
        await writer.journal.snapshot(writer.ref, state, 1_000)
    else:
        await writer.do(state, acquire(state, P1))
    head = await writer.journal.newest(writer.ref)
    await bus.close()
    damage(server, journal_stream(), b'"execution_id":"planner-1:aa"' if lost == "anchor" else b"snapshot")
    bus = await jetstream.connect(server.url, user=None, password=None, name="n")
    try:
        writer = JournalWriter(bus, "s")

        async def read(at_least: int) -> None:
            await writer.journal.load(writer.ref, at_least)

        async def pack_of(*_: str) -> str:
            return "scripted"

        with pytest.raises(Damaged):
            await writer.do(state, acquire(state, P2))
        verdicts = await asyncio.gather(
            *(quarantine(bus, writer.committer, writer.ref, read, at_ms=5, writer=f"p{n}") for n in range(4)),
        )
        assert sorted(verdicts) == ["kept", "kept", "kept", "written"]
        blocks = BlockJournal(bus, writer.committer, "test")
        repairs = Repairer(bus, writer.committer, writer.journal, blocks, "test", pack_of)
        plan = await repairs.plan(writer.ref)
        assert ("lost", head) in [(each.finding.trouble, each.finding.sequence) for each in plan.remedies]
        order = Order(plan.digest, "ann", "the disk was replaced", 10_000)
        done = await repairs.carry_out(writer.ref, order)
        state = await writer.load()
        assert state.anchor is not None
        assert (state.anchor.status, state.head) == ("idle", done.sequence)
        assert state.anchor.fence.run > state.anchor.run_id >= (1 if lost == "anchor" else 0)
        state = await writer.do(state, acquire(state, P2))
        assert (await writer.load()).head == state.head
        assert (await verify(bus, journal_stream(), writer.journal, writer.ref)).open == []
    finally:
        await bus.close()


async def test_lost_claim_permits_no_new_first_claim(server: NatsServer) -> None:
    """Unreadable while the server has its index; after a kill it is lost, with all later messages of its block."""
    bus = await jetstream.connect(server.url, user=None, password=None, name="n")
    await ensure_topology(bus)
    writer, call = JournalWriter(bus, "s"), CallId(1, 1, 1)
    state = await writer.created()
    state = await writer.do(await writer.do(state, acquire(state, P1)), step(1, P1))
    claim = Claimed(Owner("executor-1", "the-lost-claim"), 1, "key")
    claimed = await writer.effects.append(writer.ref, "default", call, EffectState(), claim, 3_000)
    await bus.close()
    damage(server, journal_stream(), b"the-lost-claim")
    bus = await jetstream.connect(server.url, user=None, password=None, name="n")
    writer = JournalWriter(bus, "s")
    with pytest.raises(Unreadable):
        await writer.effects.load(writer.ref, "default", call, state.head)
    with pytest.raises(Damaged):
        await writer.journal.check_effects(writer.ref, 1, {call})
    # The fence of a first claim holds on a server that cannot read the existing one, so no executor may get this far.
    again = await writer.effects.append(writer.ref, "default", call, EffectState(), claim, 3_000)
    assert again.head > claimed.head
    await bus.close()
    server.restart()
    bus = await jetstream.connect(server.url, user=None, password=None, name="n")
    try:
        writer = JournalWriter(bus, "s")
        assert await bus.holes(journal_stream()) == [(claimed.head, claimed.head)]
        found = await writer.effects.load(writer.ref, "default", call, state.head)
        assert (found.head, found.first_claim, found.lost_claim, found.doubt) == (
            0,
            claimed.head,
            claimed.head,
            True,
        )
    finally:
        await bus.close()
