"""What becomes of the messages that a look was called for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anchorwatch.core.session.state import Turn

from anchorwatch_planner.evidence import Cause

REPLACED_RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class Later:
    """Not done: deliver the message again after ``delay_s``."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class Held:
    """Another planner goes on with the turn. Message ``by`` is what it holds: that one is neither acked nor asked for again.

    The others are delivered again after ``delay_s``; None: acked.
    """

    by: int
    delay_s: float | None


@dataclass(frozen=True, slots=True)
class Ended:
    """A turn has ended. Its messages stay in hand until the session has been looked at behind the end.

    What came meanwhile may have been acked by another planner, which saw it run.
    """


Verdict = Later | Held | Ended | None
"""None: all that the messages in hand call for is recorded; ack them."""


def left_to_holder(turn: Turn, causes: Sequence[Cause]) -> Held:
    """The verdict while another planner goes on with the turn; it looks again at the turn's end.

    What it holds is its own to answer: acked here, the message would not come again when it dies; asked for again, its coming
    would be evidence against a planner that is at work.
    """
    replaced = any(not each.again and (each.kind == "done" or each.attempt > 1) for each in causes)
    return Held(turn.woken_by, REPLACED_RETRY_S if replaced else None)
