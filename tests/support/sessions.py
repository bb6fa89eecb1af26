"""A session that a test drives by hand: the real session machine and the real journal, without a planner process."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anchorwatch.bus.port import Bus
from anchorwatch.codec import decode
from anchorwatch.core.effect import EffectState
from anchorwatch.core.effect.state import EffectEvent, Outcome
from anchorwatch.core.errors import Unavailable
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.records import Kind, Record
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import (
    Acquire,
    Command,
    CommitStep,
    Control,
    Create,
    EndTurn,
    PlannedCall,
)
from anchorwatch.core.session.decide import decide
from anchorwatch.core.session.events import StepHead
from anchorwatch.core.session.state import SeenObservation
from anchorwatch.journal.commit import Committer
from anchorwatch.journal.effects import EffectJournal
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.topology.streams import journal_stream
from anchorwatch.topology.subjects import SessionSubjects

from tests.support.waiting import eventually

PLANNER = "planner-1:test"
READS = ("look", "recall", "read_result")
AGENT = "keeper@1"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Decided:
    """A command in the journal."""

    call: CallId
    pool: str
    sequence: int


class ScriptedSession:
    """Decides as a planner would, on the test's order."""

    def __init__(self, bus: Bus, session: str = "fleet", workspace: str = "default") -> None:
        self.ref = SessionRef(workspace, session)
        self.bus = bus
        self._committer = Committer(bus, journal_stream())
        self._journal = SessionJournal(bus, self._committer, PLANNER)
        self.effects = EffectJournal(bus, self._committer, "test")

    async def do(self, command: Command) -> int:
        """Record the machine's decision; returns the sequence of the last record."""
        state = await self._journal.load(self.ref, 0)
        after = await self._journal.append(self.ref, state, decide(state, command), now_ms())
        return after.head

    async def load(self) -> SessionState:
        """The session's current state."""
        return await self._journal.load(self.ref, 0)

    async def create(self, agent: str = AGENT) -> int:
        return await self.do(Create(self.ref, agent, (), (), now_ms(), "test"))

    async def acquire(self, turn_id: str = "turn_1", agent: str = AGENT) -> int:
        return await self.do(Acquire(turn_id, agent, PLANNER, 0, 0, now_ms()))

    async def commands(
        self,
        *calls: tuple[str, dict[str, Any]],
        pool: str = "default",
        digest: str = "d1",
        seen_ms: int | None = None,
    ) -> Sequence[Decided]:
        """A step with these calls."""
        state = await self._journal.load(self.ref, 0)
        assert state.turn is not None, "acquire first"
        step = len(state.turn.steps) + 1
        seen = SeenObservation(digest, now_ms() if seen_ms is None else seen_ms, "seen")
        head = StepHead(step, "", seen, None, calls=len(calls))
        planned = tuple(
            PlannedCall(
                n, tool, args, f"call_{n}", pool, f"{tool}/{args.get('item', '')}", mutating=tool not in READS
            )
            for n, (tool, args) in enumerate(calls, 1)
        )
        last = await self.do(CommitStep(PLANNER, head, planned))
        first = last - len(calls) + 1
        return [Decided(CallId(state.turn.run_id, step, n + 1), pool, first + n) for n in range(len(calls))]

    async def command(self, tool: str, mode: str = "ok", item: str = "x", **more: Any) -> Decided:
        """A step with one call of the bench."""
        args = {"item": item, "mode": mode, **more.pop("args", {})}
        return (await self.commands((tool, args), **more))[0]

    async def control(self, kind: Kind) -> int:
        """paused, resumed, cancelled, deleted, quarantined."""
        return await self.do(Control(kind, "test", now_ms()))

    async def end(self, outcome: Any = "success", reason: str = "") -> int:
        return await self.do(EndTurn(PLANNER, outcome, reason, {}, now_ms() + 300_000, None, None, now_ms()))

    async def effect(self, decided: Decided) -> EffectState:
        return await self.effects.load(self.ref, decided.pool, decided.call, decided.sequence)

    async def record(self, decided: Decided, *events: EffectEvent) -> EffectState:
        """Write to the command's family as an executor would."""
        state = await self.effect(decided)
        for event in events:
            state = await self.effects.append(self.ref, decided.pool, decided.call, state, event, now_ms())
        return state

    async def outcome(self, decided: Decided, within_s: float = 30.0) -> Outcome:
        """The command's outcome, once it is recorded."""

        async def there() -> Outcome | None:
            # A test may stop the server at this time.
            with contextlib.suppress(Unavailable):
                return (await self.effect(decided)).outcome
            return None

        done = await eventually(there, within_s, f"an outcome of {decided.call}")
        assert done is not None
        return done

    async def records(self, decided: Decided) -> list[str]:
        """The kinds of the records of a command's family, in order."""
        family = SessionSubjects(self.ref).effect_family(decided.pool, decided.call)
        page = await self.bus.range(journal_stream(), family, 1)
        return [decode(stored.payload).kind for stored in page.messages]

    async def last(self, subject: str) -> list[Record]:
        """The last record of each subject that matches, below this session."""
        whole = SessionSubjects(self.ref).everything.removesuffix(">") + subject
        page = await self.bus.last(journal_stream(), [whole])
        return [decode(stored.payload) for stored in page.messages]
