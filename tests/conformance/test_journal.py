"""The journal on both buses: one writer at a time, one lasting receipt, one outcome for each command.

The numbered interleavings are those of docs/protocol.md; each broke an earlier form of the protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import pytest
from anchorwatch.bus.port import Bus, Expect, Message
from anchorwatch.codec import canonical_json, decode, encode, encode_anchor, sha256_hex
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.effect.state import Claimed, Owner
from anchorwatch.core.errors import Damaged, Fenced, IdempotencyConflict, NotFound
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.records import Kind, Record
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import Control, Create, TakeOver
from anchorwatch.core.session.decide import decide
from anchorwatch.journal import sessions
from anchorwatch.journal.commit import Committer, Write
from anchorwatch.journal.reading import STALE_ATTEMPTS_MAX
from anchorwatch.topology.streams import STREAMS, journal_stream
from anchorwatch.topology.subjects import SessionSubjects

from tests.conformance.worlds import World
from tests.support.journal_writer import P1, P2, JournalWriter, acquire, end, step


@pytest.fixture
async def writer(bus: Bus, world: World) -> JournalWriter:
    for spec in STREAMS:
        await bus.ensure_stream(spec)
    return JournalWriter(bus, world.stream("s").replace("_", "-").lower())


async def test_unknown_session_has_no_anchor(writer: JournalWriter) -> None:
    assert (await writer.load()).anchor is None
    with pytest.raises(NotFound):
        await writer.journal.read_anchor(writer.ref)


async def test_loaded_state_equals_appended_records(writer: JournalWriter) -> None:
    state = await writer.created()
    await writer.say("i1")
    state = await writer.journal.load(writer.ref, 0, state)
    state = await writer.do(state, acquire(state, P1))
    state = await writer.do(state, step(1, P1, count=3))
    loaded = await writer.load()
    assert loaded.turn == state.turn
    assert (loaded.head, loaded.head_digest, loaded.anchor) == (state.head, state.head_digest, state.anchor)
    anchor, sequence = await writer.journal.read_anchor(writer.ref, state.anchor_sequence)
    assert (anchor, sequence) == (state.anchor, state.anchor_sequence)


async def test_all_inputs_are_read_over_any_number_of_answers(
    writer: JournalWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "PAGE", 2)
    state = await writer.created()
    given = [(await writer.say(f"i{number}")).sequence for number in range(2 * STALE_ATTEMPTS_MAX + 4)]
    for reads in (writer.journal.with_inputs(writer.ref, state, given[-1]), writer.load()):
        read = await reads
        assert [each.sequence for each in read.pending] == given
        assert read.read_through >= given[-1]


async def test_order_wakes_planners_with_its_own_record(
    writer: JournalWriter,
) -> None:
    state = await writer.created()
    await writer.say("i1")
    state = await writer.journal.load(writer.ref, 0, state)
    for command in (Control(Kind.PAUSED, "person", 2_000), Control(Kind.RESUMED, "person", 2_000)):
        state = await writer.do(state, command)
    state = await writer.do(await writer.do(state, acquire(state, P1)), end(P1))
    page = await writer.bus.range(writer.committer.stream, SessionSubjects(writer.ref).everything, 1)
    report = [
        (decode(each.payload).body, each.sequence)
        for each in page.messages
        if each.subject.endswith(".ctl.wake")
    ]
    anchors = [each.sequence for each in page.messages if ".p.anchor." in each.subject]
    kinds = ("created", "paused", "resumed")
    # Directly after the anchor: both are in one batch.
    assert report == [({"kinds": [kind]}, at + 1) for kind, at in zip(kinds, anchors, strict=False)]
    assert (await writer.load()).head == state.head == anchors[-1]


async def test_snapshot_load_equals_load_from_the_start(writer: JournalWriter) -> None:
    state = await writer.created()
    for n in range(3):
        await writer.say(f"i{n}", f"CRITICAL: rule {n}")
        state = await writer.journal.load(writer.ref, 0, state)
        state = await writer.do(state, acquire(state, P1))
        await writer.say(f"late{n}")
        state = await writer.do(state, end(P1))
        if n == 1:
            state = await writer.journal.snapshot(writer.ref, state, 3_000)
    kept = await writer.journal.load(writer.ref, 0, state)
    fresh = await writer.load()
    assert fresh.snapshot_sequence == kept.snapshot_sequence > 0
    assert (fresh.anchor, fresh.history, fresh.pending, fresh.head) == (
        kept.anchor,
        kept.history,
        kept.pending,
        kept.head,
    )
    assert fresh.critical == kept.critical
    assert [each.text for each in fresh.critical] == [f"CRITICAL: rule {n}" for n in range(3)]
    assert [each.input_id for each in fresh.pending] == ["late2"], (
        "the others were taken by the turn after them"
    )


async def test_one_key_gives_one_input_and_one_receipt(writer: JournalWriter) -> None:
    await writer.created()
    receipts = await asyncio.gather(*(writer.say("key") for _ in range(40)))
    assert len({receipt.sequence for receipt in receipts}) == 1
    assert sum(not receipt.replayed for receipt in receipts) == 1
    with pytest.raises(IdempotencyConflict) as conflict:
        await writer.say("key", "another body")
    assert conflict.value.first_body_sha256 == sha256_hex(canonical_json("hello"))


async def test_only_one_of_two_planners_starts_the_turn(writer: JournalWriter) -> None:
    await writer.created()
    await writer.say("i")
    state = await writer.load()
    results = await asyncio.gather(
        *(writer.do(state, acquire(state, who)) for who in (P1, P2) * 4), return_exceptions=True
    )
    assert sum(isinstance(result, SessionState) for result in results) == 1
    assert sum(isinstance(result, Fenced) for result in results) == 7
    loaded = await writer.load()
    assert loaded.anchor is not None
    assert (loaded.anchor.run_id, loaded.anchor.generation) == (1, 1)


async def test_interleaving_1_takeover_before_a_committed_step_fails(writer: JournalWriter) -> None:
    state = await writer.created()
    held = await writer.do(state, acquire(state, P1))
    seen_by_p2 = await writer.load()
    await writer.do(held, step(1, P1))
    with pytest.raises(Fenced):
        await writer.do(seen_by_p2, TakeOver(P2, 1, 2_500, "thinks that P1 is gone"))
    loaded = await writer.load()
    assert loaded.turn is not None
    assert len(loaded.turn.steps) == 1


async def test_interleaving_1_replaced_planner_writes_nothing_more(writer: JournalWriter) -> None:
    state = await writer.created()
    held = await writer.do(state, acquire(state, P1))
    taken = await writer.do(held, TakeOver(P2, 1, 2_500, "P1 is gone"))
    for command in (step(1, P1, count=3), end(P1)):
        with pytest.raises(Fenced):
            await writer.do(held, command)
    assert (await writer.load()).head == taken.head


async def test_refused_step_leaves_none_of_its_commands(writer: JournalWriter) -> None:
    state = await writer.created()
    held = await writer.do(state, acquire(state, P1))
    await writer.do(held, Control(Kind.CANCELLED, "person", 2_400))
    with pytest.raises(Fenced):
        await writer.do(held, step(1, P1, count=5))
    page = await writer.bus.range(journal_stream(), SessionSubjects(writer.ref).command("default"), 1)
    assert page.messages == ()


async def test_interleaving_3_claims_with_one_message_id_differ(writer: JournalWriter) -> None:
    subject = SessionSubjects(writer.ref).effect("default", CallId(1, 1, 1), "claim")
    family = Expect(SessionSubjects(writer.ref).effect_family("default", CallId(1, 1, 1)), 0)
    one = Committer(writer.bus, journal_stream(), new_id=iter([f"nonce-{writer.ref.session}-1"]).__next__)
    two = Committer(writer.bus, journal_stream(), new_id=iter([f"nonce-{writer.ref.session}-2"]).__next__)
    assert await one.commit([Write(subject, b"mine")], family) > 0
    with pytest.raises(Fenced):
        await two.commit([Write(subject, b"mine too")], family)


async def test_interleaving_3_shared_message_id_proves_no_success(writer: JournalWriter) -> None:
    subject = SessionSubjects(writer.ref).effect("default", CallId(1, 1, 1), "claim")
    family = Expect(SessionSubjects(writer.ref).effect_family("default", CallId(1, 1, 1)), 0)
    shared = f"shared-{writer.ref.session}"
    one, two = (Committer(writer.bus, journal_stream(), new_id=lambda: shared) for _ in range(2))
    assert await one.commit([Write(subject, b"mine")], family) > 0
    with pytest.raises(Fenced):
        await two.commit([Write(subject, b"mine too")], family)


async def test_interleaving_5_one_of_many_executors_claims(writer: JournalWriter) -> None:
    call = CallId(1, 1, 1)
    state = await writer.effects.load(writer.ref, "default", call, 0)

    async def claim(n: int) -> bool:
        try:
            owner = Owner(f"executor-{n}", "x")
            await writer.effects.append(writer.ref, "default", call, state, Claimed(owner, 1, "key"), 2_000)
        except Fenced:
            return False
        return True

    won = await asyncio.gather(*(claim(n) for n in range(10)))
    assert sum(won) == 1
    loaded = await writer.effects.load(writer.ref, "default", call, 0)
    assert loaded.claim is not None
    assert loaded.claim.owner.instance == f"executor-{won.index(True)}"


async def test_gap_in_the_chain_of_digests_is_reported(writer: JournalWriter) -> None:
    state = await writer.created()
    anchor = state.anchor or Anchor(workspace="default", session="x", agent="keeper@1")
    forged, _ = encode_anchor(anchor, Record(Kind.PAUSED, 5, "somebody", {}, "ab" * 32))
    subject = SessionSubjects(writer.ref).anchor_change
    ack = await writer.bus.publish(Message(subject, forged))
    with pytest.raises(Damaged, match=f"sequence {ack.sequence}: it does not follow"):
        await writer.load()


@pytest.mark.parametrize("register", ["p.log", "p.cmd.default", "in.x", "p.anchor.change", "p.anchor.turn"])
async def test_unreadable_record_is_named(writer: JournalWriter, register: str) -> None:
    await writer.created()
    good, _ = encode(Record("kind", 5, "me", {}))
    subject = SessionSubjects(writer.ref).everything.removesuffix(">") + register
    ack = await writer.bus.publish(Message(subject, good[:-1]))
    with pytest.raises(Damaged, match=f"sequence {ack.sequence}"):
        await writer.load()


async def test_damage_of_one_session_affects_no_other(writer: JournalWriter) -> None:
    await writer.created()
    await writer.bus.publish(Message(SessionSubjects(writer.ref).log, b"noise"))
    other = SessionRef("default", writer.ref.session + "-b")
    create = Create(other, "keeper@1", (), (), 1_000, "person")
    await writer.journal.append(other, SessionState(), decide(SessionState(), create), 1_000)
    assert (await writer.journal.load(other, 0)).anchor is not None


async def test_stale_fence_in_a_group_commit_stops_no_other(writer: JournalWriter) -> None:
    def write(number: int, head: int) -> Coroutine[None, None, int]:
        subjects = SessionSubjects(SessionRef("default", f"{writer.ref.session}-{number}"))
        fence = Expect(subjects.planner_family, head)
        return writer.committer.commit([Write(subjects.log, b"%d" % number)], fence)

    stood = await write(30, 0)
    answers = await asyncio.gather(*(write(n, 0) for n in range(50)), return_exceptions=True)
    assert [n for n, answer in enumerate(answers) if not isinstance(answer, int)] == [30]
    assert isinstance(answers[30], Fenced)
    for n, answer in enumerate(answers):
        subject = SessionSubjects(SessionRef("default", f"{writer.ref.session}-{n}")).log
        page = await writer.bus.last(writer.committer.stream, [subject])
        at = stood if n == 30 else answer
        assert [(each.sequence, each.payload) for each in page.messages] == [(at, b"%d" % n)]
    # Even if no write is refused.
    again = await asyncio.gather(*(write(n, at) for n, at in enumerate(answers) if isinstance(at, int)))
    assert len(set(again)) == len(again) == 49
