"""An effect that a person has settled: the turn that it belongs to goes on with it, or a later one looks at it, once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anchorwatch.bus.port import Stored
from anchorwatch.codec import decode
from anchorwatch.core.effect.state import Outcome
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.session.state import P0
from anchorwatch.edges import Edge, reached
from anchorwatch.journal.commit import Committer
from anchorwatch.journal.effect_mapping import read_outcome
from anchorwatch.journal.inputs import accept
from anchorwatch.journal.mapping import input_body
from anchorwatch.service.context import Clock

from anchorwatch_planner.evidence import Cause

_MARK = b"resolved"


class Resolutions:
    """Makes inputs of them. ``writer`` names the process in the records."""

    def __init__(self, committer: Committer, clock: Clock, writer: str) -> None:
        self._committer = committer
        self._clock = clock
        self._writer = writer

    async def pass_on(
        self, ref: SessionRef, causes: Sequence[Cause], is_at_hand: Callable[[CallId], bool]
    ) -> list[Cause]:
        """Make an input of each that no turn at hand will show; returns the other causes.

        The first write wins, so whoever else does the same makes no second one.

        Raises:
            Unavailable, Damaged.
        """
        rest = []
        for cause in causes:
            outcome = _resolved(cause.stored) if cause.stored and cause.kind == "done" else None
            if outcome is None or is_at_hand(outcome.call):
                rest.append(cause)
            elif cause.stored is not None:
                await self._accept(ref, outcome, cause.stored)
        return rest

    async def _accept(self, ref: SessionRef, outcome: Outcome, stored: Stored) -> None:
        call = outcome.call
        text = f"what became of {ref.session}/{call} ({_what(outcome)}) was unknown, and is settled: {outcome.text}"
        body = input_body(
            "resolution", P0, text=text, by=outcome.by, body_sha256=decode(stored.payload).digest
        )
        input_id = f"resolved-{call.run}-{call.step}-{call.n}"
        reached(Edge.PLANNER_RESOLUTION_BEFORE)
        await accept(self._committer, ref, input_id, body, at_ms=self._clock.now_ms(), writer=self._writer)
        reached(Edge.PLANNER_RESOLUTION_AFTER)


def _resolved(stored: Stored) -> Outcome | None:
    # Most outcomes are none of these, and need not be read twice.
    if _MARK not in stored.payload:
        return None
    outcome = read_outcome(decode(stored.payload).body)
    return outcome if outcome.state == "resolved" else None


def _what(outcome: Outcome) -> str:
    return f"{outcome.tool} on {outcome.resource}" if outcome.resource else outcome.tool
