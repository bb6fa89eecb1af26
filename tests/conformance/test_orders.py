"""Orders on both buses: carried out once, on the current state, completely or not at all."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field

import pytest
from anchorwatch.bus.port import Bus, Expect, Message
from anchorwatch.codec import decode, encode
from anchorwatch.core.errors import Fenced, IdempotencyConflict, Refused, TurnNotActive, Unavailable
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind, Record
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import Acquire, Control, Create, Direct, EndTurn, Order
from anchorwatch.core.session.decide import decide
from anchorwatch.journal.commit import Committer, Write
from anchorwatch.journal.integrity.verify import verify
from anchorwatch.journal.mapping import input_body
from anchorwatch.journal.orders import Asked, Done, OrderJournal
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.topology.streams import STREAMS, journal_stream
from anchorwatch.topology.subjects import SessionSubjects

from tests.conformance.worlds import World

ME = "planner-1:aa"


class CountedSessions(SessionJournal):
    """Counts the loads of a session."""

    loads = 0

    async def load(self, ref: SessionRef, at_least: int, known: SessionState | None = None) -> SessionState:
        self.loads += 1
        return await super().load(ref, at_least, known)


@dataclass
class Desk:
    """A session of this test alone, and its order journal."""

    bus: Bus
    ref: SessionRef
    committer: Committer = field(init=False)
    sessions: SessionJournal = field(init=False)
    orders: OrderJournal = field(init=False)

    def __post_init__(self) -> None:
        self.committer = Committer(self.bus, journal_stream())
        self.sessions = SessionJournal(self.bus, self.committer, "gateway-1:aa")
        self.orders = OrderJournal(self.bus, self.committer, self.sessions)

    async def do(self, command: object) -> SessionState:
        state = await self.sessions.load(self.ref, 0)
        return await self.sessions.append(self.ref, state, decide(state, command), 2_000)  # type: ignore[arg-type]

    async def ask(self, key: str, order: Order, body: str = "b") -> Done:
        return await self.orders.carry_out(self.ref, Asked(f"c-{key}", "ada", body), lambda _: order)

    async def ask_elsewhere(self, key: str, order: Order) -> Done:
        """As `ask`, from another process, which shares no lock with this one."""
        return await Desk(self.bus, self.ref).ask(key, order)

    async def subjects(self) -> list[str]:
        page = await self.bus.range(journal_stream(), SessionSubjects(self.ref).everything, 1, limit=500)
        return [each.subject.split(".", 5)[5] for each in page.messages]


@pytest.fixture
async def desk(bus: Bus, world: World) -> Desk:
    for spec in STREAMS:
        await bus.ensure_stream(spec)
    made = Desk(bus, SessionRef("default", world.stream("s").replace("_", "-").lower()))
    await made.do(Create(made.ref, "keeper@1", (), (), 1_000, "ada"))
    return made


async def test_order_and_receipt_are_stored_together_with_their_author(desk: Desk) -> None:
    done = await desk.ask("k", Control(Kind.PAUSED, "ada", 2_000, "it rains", control_id="c-k"))
    assert (await desk.subjects())[-2:] == ["p.anchor.change", "ctl.c-k"]
    page = await desk.bus.last(journal_stream(), [SessionSubjects(desk.ref).anchor_change])
    envelope = json.loads(page.messages[0].payload)["record"]
    assert envelope["body"] == {"by": "ada", "control": "c-k", "reason": "it rains"}
    receipt = await desk.bus.last(journal_stream(), [SessionSubjects(desk.ref).control("c-k")])
    assert decode(receipt.messages[0].payload).body == {
        "by": "ada",
        "body_sha256": "b",
        "kinds": ["paused"],
    }
    assert (done.sequence, done.replayed) == (page.messages[0].sequence, False)


async def test_repeated_request_gets_the_first_receipt(desk: Desk) -> None:
    first = await desk.ask("k", Control(Kind.PAUSED, "ada", 2_000, control_id="c-k"))
    await desk.do(Control(Kind.RESUMED, "ada", 2_100))
    again = await desk.ask("k", Control(Kind.PAUSED, "ada", 2_200, control_id="c-k"))
    assert (again.sequence, again.replayed, again.change) == (first.sequence, True, first.change)
    assert (await desk.sessions.read_anchor(desk.ref))[0].status == "idle"


async def test_key_of_another_request_is_a_conflict(desk: Desk) -> None:
    await desk.ask("k", Control(Kind.PAUSED, "ada", 2_000, control_id="c-k"))
    with pytest.raises(IdempotencyConflict):
        await desk.ask("k", Control(Kind.RESUMED, "ada", 2_000, control_id="c-k"), body="other")


async def test_concurrent_requests_with_one_key_share_one_receipt(
    desk: Desk,
) -> None:
    order = Control(Kind.PAUSED, "ada", 2_000, control_id="c-k")
    done = await asyncio.gather(*(desk.ask_elsewhere("k", order) for _ in range(12)))
    assert len({each.sequence for each in done}) == 1
    assert sum(not each.replayed for each in done) == 1


async def test_thousand_concurrent_orders_read_the_session_in_turn(desk: Desk) -> None:
    order = Direct("ada", 2_000, "objectives", "set", ("o",), control_id="c-k")
    sessions = CountedSessions(desk.bus, desk.committer, "gateway-1:aa")
    desk.orders = OrderJournal(desk.bus, desk.committer, sessions)
    done = await asyncio.gather(*(desk.ask("k", order) for _ in range(1_000)))
    assert len({each.sequence for each in done}) == 1
    assert sum(not each.replayed for each in done) == 1
    assert sessions.loads == 1, "who loses reads all of the session for nothing"


async def test_concurrent_orders_are_decided_on_the_current_state(desk: Desk) -> None:
    await asyncio.gather(
        *(
            desk.ask_elsewhere(
                f"{n}", Direct("ada", 2_000, "objectives", "add", (f"o{n}",), control_id=f"c-{n}")
            )
            for n in range(5)
        )
    )
    anchor, _ = await desk.sessions.read_anchor(desk.ref)
    assert sorted(anchor.objectives) == ["o0", "o1", "o2", "o3", "o4"]


async def test_refused_order_leaves_no_record_and_frees_its_key(desk: Desk) -> None:
    before = await desk.subjects()
    with pytest.raises(TurnNotActive):
        await desk.ask("k", Control(Kind.CANCELLED, "ada", 2_000, turn_id="turn_9", control_id="c-k"))
    assert await desk.subjects() == before
    await desk.ask("k", Control(Kind.PAUSED, "ada", 2_000, control_id="c-k"))


async def test_companion_record_is_stored_with_its_order_or_not(desk: Desk) -> None:
    subject = SessionSubjects(desk.ref).input("canary-1")
    payload, _ = encode(Record(Kind.INPUT, 2_000, "gateway-1:aa", input_body("canary", 0)))
    taken = Write(subject, payload, Expect(subject, 0))

    async def ask(key: str) -> Done:
        order = Control(Kind.PAUSED, "ada", 2_000, control_id=f"c-{key}")
        return await desk.orders.carry_out(
            desk.ref, Asked(f"c-{key}", "ada", "b"), lambda _: order, also=lambda _: [taken]
        )

    await ask("one")
    assert (await desk.subjects())[-3:] == ["p.anchor.change", "ctl.c-one", "in.canary-1"]
    await desk.do(Control(Kind.RESUMED, "ada", 2_100))
    before = await desk.subjects()
    with pytest.raises(Unavailable, match="changed by other writers"):
        await ask("two")
    assert await desk.subjects() == before


async def test_planner_writes_nothing_after_an_order_ends_its_turn(desk: Desk) -> None:
    state = await desk.do(Acquire("turn_1", "keeper@1", ME, 1, 1, 2_000))
    await desk.ask("k", Control(Kind.CANCELLED, "ada", 2_000, turn_id="turn_1", control_id="c-k"))
    end = EndTurn(ME, "success", "", {}, 9_000, None, None, 3_000)
    with pytest.raises(Fenced):
        await desk.sessions.append(desk.ref, state, decide(state, end), 3_000)


async def test_session_with_too_many_subjects_for_a_read_works(desk: Desk, bus: Bus) -> None:
    subjects = SessionSubjects(desk.ref)
    payload, _ = encode(Record(Kind.INPUT, 2_000, ME, input_body("event", 1)))
    await asyncio.gather(
        *(bus.publish(Message(subjects.input(f"i{n}"), payload, message_id=f"i{n}")) for n in range(1_100))
    )
    stale = await desk.sessions.load(desk.ref, 0)
    await desk.ask("pause", Control(Kind.PAUSED, "ada", 2_000, control_id="c-pause"))
    # The stream grows, but this session does not.
    await bus.publish(Message(SessionSubjects(SessionRef("default", "another")).input("i"), payload))
    with pytest.raises(Refused, match="paused"):
        await desk.ask("again", Control(Kind.PAUSED, "ada", 2_000, control_id="c-again"))
    assert await desk.sessions.newest(desk.ref) > stale.head
    examined = await verify(bus, journal_stream(), desk.sessions, desk.ref)
    assert (list(examined.findings), examined.through > stale.head) == ([], True)
