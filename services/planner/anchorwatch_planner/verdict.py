"""What a look came to, and so what becomes of the messages that it was called for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anchorwatch.core.session.state import Turn
from anchorwatch.service.worker import Result

from anchorwatch_planner.evidence import Cause

REPLACED_RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class Held:
    """Another planner goes on with the turn. Message ``by`` is what it holds: that one is neither acked nor asked for again.

    The others are delivered again after ``delay_s``; None: acked.
    """

    by: int
    delay_s: float | None


@dataclass(frozen=True, slots=True)
class Ended:
    """A turn has ended. Its messages stay in hand until a look has read past the end.

    What came meanwhile may have been acked by another planner, which saw the turn run.
    """


@dataclass(frozen=True, slots=True)
class LookAgain:
    """The look has not come to rest: it goes on with what is now known of the session."""


Verdict = Result | Held | Ended
"""`Done`: all that the messages in hand call for is recorded."""


def left_to_holder(turn: Turn, causes: Sequence[Cause]) -> Held:
    """The verdict while another planner goes on with the turn; it looks again at the turn's end.

    What it holds is its own to answer: acked here, the message would not come again when it dies; asked for again, its coming
    would be evidence against a planner that is at work.
    """
    replaced = any(not each.again and (each.kind == "done" or each.attempt > 1) for each in causes)
    return Held(turn.woken_by, REPLACED_RETRY_S if replaced else None)
