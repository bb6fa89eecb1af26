"""Writes a session's journal as planners, executors and people do, by the real state machines."""

from __future__ import annotations

from anchorwatch.bus.port import Bus
from anchorwatch.codec import canonical_json, sha256_hex
from anchorwatch.core.names import SessionRef
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import Acquire, CommitStep, Create, EndTurn, PlannedCall
from anchorwatch.core.session.decide import decide
from anchorwatch.core.session.events import StepHead
from anchorwatch.journal.commit import Committer
from anchorwatch.journal.effects import EffectJournal
from anchorwatch.journal.inputs import Receipt, accept
from anchorwatch.journal.mapping import input_body
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.topology.streams import journal_stream

P1, P2 = "planner-1:aa", "planner-2:bb"


class JournalWriter:
    """The journal of one session, on one bus."""

    def __init__(self, bus: Bus, session: str) -> None:
        self.bus = bus
        self.ref = SessionRef("default", session)
        self.committer = Committer(bus, journal_stream())
        self.journal = SessionJournal(bus, self.committer, "test")
        self.effects = EffectJournal(bus, self.committer, "test")

    async def do(self, state: SessionState, command: object) -> SessionState:
        return await self.journal.append(self.ref, state, decide(state, command), 2_000)  # type: ignore[arg-type]

    async def created(self) -> SessionState:
        return await self.do(SessionState(), Create(self.ref, "keeper@1", ("more",), (), 1_000, "person"))

    async def load(self) -> SessionState:
        return await self.journal.load(self.ref, 0)

    async def say(self, id_: str, text: str = "hello") -> Receipt:
        body = input_body("message", 0, text=text, body_sha256=sha256_hex(canonical_json(text)))
        return await accept(self.committer, self.ref, id_, body, at_ms=1_500, writer="test")


def acquire(state: SessionState, who: str) -> Acquire:
    run = state.anchor.run_id + 1 if state.anchor else 1
    return Acquire(f"turn_{run}", "keeper@1", who, state.read_through, state.read_through, 2_000)


def step(number: int, who: str, count: int = 1) -> CommitStep:
    calls = tuple(PlannedCall(n, "launch", {"count": n}, "", "default", "fleet") for n in range(1, count + 1))
    return CommitStep(who, StepHead(number, "", None, None, calls=count), calls)


def end(who: str) -> EndTurn:
    return EndTurn(who, "success", "", {"tasks_queued": 59}, 9_000, None, None, 3_000)
