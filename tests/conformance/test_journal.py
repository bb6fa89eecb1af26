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
from tests.support.shelf import P1, P2, Shelf, acquire, end, step


@pytest.fixture
async def shelf(bus: Bus, world: World) -> Shelf:
    for spec in STREAMS:
        await bus.ensure_stream(spec)
    return Shelf(bus, world.stream("s").replace("_", "-").lower())


async def test_unknown_session_has_no_anchor(shelf: Shelf) -> None:
    assert (await shelf.load()).anchor is None
    with pytest.raises(NotFound):
        await shelf.journal.read_anchor(shelf.ref)


async def test_loaded_state_equals_appended_records(shelf: Shelf) -> None:
    state = await shelf.created()
    await shelf.say("i1")
    state = await shelf.journal.load(shelf.ref, 0, state)
    state = await shelf.do(state, acquire(state, P1))
    state = await shelf.do(state, step(1, P1, count=3))
    loaded = await shelf.load()
    assert loaded.turn == state.turn
    assert (loaded.head, loaded.head_digest, loaded.anchor) == (state.head, state.head_digest, state.anchor)
    anchor, sequence = await shelf.journal.read_anchor(shelf.ref, state.anchor_sequence)
    assert (anchor, sequence) == (state.anchor, state.anchor_sequence)


async def test_all_inputs_are_read_over_any_number_of_answers(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "PAGE", 2)
    state = await shelf.created()
    given = [(await shelf.say(f"i{number}")).sequence for number in range(2 * STALE_ATTEMPTS_MAX + 4)]
    for reads in (shelf.journal.with_inputs(shelf.ref, state, given[-1]), shelf.load()):
        read = await reads
        assert [each.sequence for each in read.pending] == given
        assert read.read_through >= given[-1]


async def test_order_wakes_planners_with_its_own_record(
    shelf: Shelf,
) -> None:
    state = await shelf.created()
    await shelf.say("i1")
    state = await shelf.journal.load(shelf.ref, 0, state)
    for command in (Control(Kind.PAUSED, "person", 2_000), Control(Kind.RESUMED, "person", 2_000)):
        state = await shelf.do(state, command)
    state = await shelf.do(await shelf.do(state, acquire(state, P1)), end(P1))
    page = await shelf.bus.range(shelf.committer.stream, SessionSubjects(shelf.ref).everything, 1)
    told = [
        (decode(each.payload).body, each.sequence)
        for each in page.messages
        if each.subject.endswith(".ctl.wake")
    ]
    anchors = [each.sequence for each in page.messages if ".p.anchor." in each.subject]
    kinds = ("created", "paused", "resumed")
    # Directly after the anchor: both are in one batch.
    assert told == [({"kinds": [kind]}, at + 1) for kind, at in zip(kinds, anchors, strict=False)]
    assert (await shelf.load()).head == state.head == anchors[-1]


async def test_snapshot_load_equals_load_from_the_start(shelf: Shelf) -> None:
    state = await shelf.created()
    for n in range(3):
        await shelf.say(f"i{n}", f"CRITICAL: rule {n}")
        state = await shelf.journal.load(shelf.ref, 0, state)
        state = await shelf.do(state, acquire(state, P1))
        await shelf.say(f"late{n}")
        state = await shelf.do(state, end(P1))
        if n == 1:
            state = await shelf.journal.snapshot(shelf.ref, state, 3_000)
    kept = await shelf.journal.load(shelf.ref, 0, state)
    fresh = await shelf.load()
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


async def test_one_key_gives_one_input_and_one_receipt(shelf: Shelf) -> None:
    await shelf.created()
    receipts = await asyncio.gather(*(shelf.say("key") for _ in range(40)))
    assert len({receipt.sequence for receipt in receipts}) == 1
    assert sum(not receipt.replayed for receipt in receipts) == 1
    with pytest.raises(IdempotencyConflict) as conflict:
        await shelf.say("key", "another body")
    assert conflict.value.first_body_sha256 == sha256_hex(canonical_json("hello"))


async def test_only_one_of_two_planners_starts_the_turn(shelf: Shelf) -> None:
    await shelf.created()
    await shelf.say("i")
    state = await shelf.load()
    results = await asyncio.gather(
        *(shelf.do(state, acquire(state, who)) for who in (P1, P2) * 4), return_exceptions=True
    )
    assert sum(isinstance(result, SessionState) for result in results) == 1
    assert sum(isinstance(result, Fenced) for result in results) == 7
    loaded = await shelf.load()
    assert loaded.anchor is not None
    assert (loaded.anchor.run_id, loaded.anchor.generation) == (1, 1)


async def test_interleaving_1_takeover_before_a_committed_step_fails(shelf: Shelf) -> None:
    state = await shelf.created()
    held = await shelf.do(state, acquire(state, P1))
    seen_by_p2 = await shelf.load()
    await shelf.do(held, step(1, P1))
    with pytest.raises(Fenced):
        await shelf.do(seen_by_p2, TakeOver(P2, 1, 2_500, "thinks that P1 is gone"))
    loaded = await shelf.load()
    assert loaded.turn is not None
    assert len(loaded.turn.steps) == 1


async def test_interleaving_1_replaced_planner_writes_nothing_more(shelf: Shelf) -> None:
    state = await shelf.created()
    held = await shelf.do(state, acquire(state, P1))
    taken = await shelf.do(held, TakeOver(P2, 1, 2_500, "P1 is gone"))
    for command in (step(1, P1, count=3), end(P1)):
        with pytest.raises(Fenced):
            await shelf.do(held, command)
    assert (await shelf.load()).head == taken.head


async def test_refused_step_leaves_none_of_its_commands(shelf: Shelf) -> None:
    state = await shelf.created()
    held = await shelf.do(state, acquire(state, P1))
    await shelf.do(held, Control(Kind.CANCELLED, "person", 2_400))
    with pytest.raises(Fenced):
        await shelf.do(held, step(1, P1, count=5))
    page = await shelf.bus.range(journal_stream(), SessionSubjects(shelf.ref).command("default"), 1)
    assert page.messages == ()


async def test_interleaving_3_claims_with_one_message_id_differ(shelf: Shelf) -> None:
    subject = SessionSubjects(shelf.ref).effect("default", CallId(1, 1, 1), "claim")
    family = Expect(SessionSubjects(shelf.ref).effect_family("default", CallId(1, 1, 1)), 0)
    one = Committer(shelf.bus, journal_stream(), new_id=iter([f"nonce-{shelf.ref.session}-1"]).__next__)
    two = Committer(shelf.bus, journal_stream(), new_id=iter([f"nonce-{shelf.ref.session}-2"]).__next__)
    assert await one.commit([Write(subject, b"mine")], family) > 0
    with pytest.raises(Fenced):
        await two.commit([Write(subject, b"mine too")], family)


async def test_interleaving_3_shared_message_id_proves_no_success(shelf: Shelf) -> None:
    subject = SessionSubjects(shelf.ref).effect("default", CallId(1, 1, 1), "claim")
    family = Expect(SessionSubjects(shelf.ref).effect_family("default", CallId(1, 1, 1)), 0)
    shared = f"shared-{shelf.ref.session}"
    one, two = (Committer(shelf.bus, journal_stream(), new_id=lambda: shared) for _ in range(2))
    assert await one.commit([Write(subject, b"mine")], family) > 0
    with pytest.raises(Fenced):
        await two.commit([Write(subject, b"mine too")], family)


async def test_interleaving_5_one_of_many_executors_claims(shelf: Shelf) -> None:
    call = CallId(1, 1, 1)
    state = await shelf.effects.load(shelf.ref, "default", call, 0)

    async def claim(n: int) -> bool:
        try:
            owner = Owner(f"executor-{n}", "x")
            await shelf.effects.append(shelf.ref, "default", call, state, Claimed(owner, 1, "key"), 2_000)
        except Fenced:
            return False
        return True

    won = await asyncio.gather(*(claim(n) for n in range(10)))
    assert sum(won) == 1
    loaded = await shelf.effects.load(shelf.ref, "default", call, 0)
    assert loaded.claim is not None
    assert loaded.claim.owner.instance == f"executor-{won.index(True)}"


async def test_gap_in_the_chain_of_digests_is_reported(shelf: Shelf) -> None:
    state = await shelf.created()
    anchor = state.anchor or Anchor(workspace="default", session="x", agent="keeper@1")
    forged, _ = encode_anchor(anchor, Record(Kind.PAUSED, 5, "somebody", {}, "ab" * 32))
    subject = SessionSubjects(shelf.ref).anchor_change
    ack = await shelf.bus.publish(Message(subject, forged))
    with pytest.raises(Damaged, match=f"sequence {ack.sequence}: it does not follow"):
        await shelf.load()


@pytest.mark.parametrize("register", ["p.log", "p.cmd.default", "in.x", "p.anchor.change", "p.anchor.turn"])
async def test_unreadable_record_is_named(shelf: Shelf, register: str) -> None:
    await shelf.created()
    good, _ = encode(Record("kind", 5, "me", {}))
    subject = SessionSubjects(shelf.ref).everything.removesuffix(">") + register
    ack = await shelf.bus.publish(Message(subject, good[:-1]))
    with pytest.raises(Damaged, match=f"sequence {ack.sequence}"):
        await shelf.load()


async def test_damage_of_one_session_affects_no_other(shelf: Shelf) -> None:
    await shelf.created()
    await shelf.bus.publish(Message(SessionSubjects(shelf.ref).log, b"noise"))
    other = SessionRef("default", shelf.ref.session + "-b")
    create = Create(other, "keeper@1", (), (), 1_000, "person")
    await shelf.journal.append(other, SessionState(), decide(SessionState(), create), 1_000)
    assert (await shelf.journal.load(other, 0)).anchor is not None


async def test_stale_fence_in_a_group_commit_stops_no_other(shelf: Shelf) -> None:
    def write(number: int, head: int) -> Coroutine[None, None, int]:
        subjects = SessionSubjects(SessionRef("default", f"{shelf.ref.session}-{number}"))
        fence = Expect(subjects.planner_family, head)
        return shelf.committer.commit([Write(subjects.log, b"%d" % number)], fence)

    stood = await write(30, 0)
    answers = await asyncio.gather(*(write(n, 0) for n in range(50)), return_exceptions=True)
    assert [n for n, answer in enumerate(answers) if not isinstance(answer, int)] == [30]
    assert isinstance(answers[30], Fenced)
    for n, answer in enumerate(answers):
        subject = SessionSubjects(SessionRef("default", f"{shelf.ref.session}-{n}")).log
        page = await shelf.bus.last(shelf.committer.stream, [subject])
        at = stood if n == 30 else answer
        assert [(each.sequence, each.payload) for each in page.messages] == [(at, b"%d" % n)]
    # Even if no write is refused.
    again = await asyncio.gather(*(write(n, at) for n, at in enumerate(answers) if isinstance(at, int)))
    assert len(set(again)) == len(again) == 49
