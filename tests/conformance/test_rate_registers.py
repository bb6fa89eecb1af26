"""The rate register that an agent's sessions share, on both buses."""

from __future__ import annotations

import pytest
from anchorwatch.bus.port import Bus, Message
from anchorwatch.core.anchor import Pace
from anchorwatch.core.errors import Fenced
from anchorwatch.core.names import SessionRef
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import Acquire, Create
from anchorwatch.core.session.decide import decide
from anchorwatch.core.session.pacing import HOUR_MS, Rate
from anchorwatch.journal.commit import Committer
from anchorwatch.journal.paces import PaceJournal
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.topology.streams import STREAMS, journal_stream

RATE = Rate(turns_per_hour=1, burst=1)
NOW_MS = 1_000_000_000


async def made(sessions: SessionJournal, name: str) -> tuple[SessionRef, SessionState]:
    ref = SessionRef("default", name)
    events = decide(SessionState(), Create(ref, "paced@1", (), (), NOW_MS, "test"))
    return ref, await sessions.append(ref, SessionState(), events, NOW_MS)


async def test_one_of_two_sessions_gets_the_last_permitted_turn(bus: Bus) -> None:
    for spec in STREAMS:
        await bus.ensure_stream(spec)
    committer = Committer(bus, journal_stream())
    sessions, paces = SessionJournal(bus, committer, "test"), PaceJournal(bus, journal_stream(), "test")
    both = [await made(sessions, name) for name in ("paced-one", "paced-other")]
    account = await paces.read(both[0][0], "paced", RATE)
    assert account.hold(NOW_MS) is None
    begun = []
    for ref, state in both:
        events = decide(state, Acquire("turn_1", "paced@1", "planner-1:a", 0, 0, NOW_MS))
        try:
            await sessions.append(ref, state, events, NOW_MS, also=(paces.spend(account, ref, NOW_MS),))
            begun.append(ref.session)
        except Fenced:
            continue
    assert begun == ["paced-one"]
    assert (await sessions.load(both[1][0], 0)).turn is None, "nothing of the other's stands"
    held = (await paces.read(both[1][0], "paced", RATE)).hold(NOW_MS)
    assert held is not None
    assert held.at_ms == NOW_MS + HOUR_MS


@pytest.mark.parametrize("payload", [b"noise", b"\x90"])
async def test_unreadable_rate_register_counts_as_empty(bus: Bus, payload: bytes) -> None:
    for spec in STREAMS:
        await bus.ensure_stream(spec)
    ref, paces = SessionRef(f"paces-{len(payload)}", "one"), PaceJournal(bus, journal_stream(), "test")
    subject = (await paces.read(ref, "paced", RATE)).subject
    await bus.publish(Message(subject, payload))
    account = await paces.read(ref, "paced", RATE)
    assert isinstance(account.pace, Pace)
    assert account.sequence > 0
    assert account.rate == RATE
