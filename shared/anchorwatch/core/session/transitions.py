"""The session machine's table: what each change of the anchor requires, and what it sets.

Theory of operation.

1. A session has one anchor.  Each record of ``p.anchor`` holds the whole new anchor and the kind of the change.
2. `TRANSITIONS` has one row for each kind: the statuses in which it is allowed, the status that it leads to, and what it
   adds to the run and the generation.  `decide` and the orders of people build every new anchor with `changed`, so the
   row cannot be bypassed; `apply` reads the row to know whether a change ends the running turn.
3. A *run* begins with an acquire and never repeats.  The *generation* grows with each acquire and takeover, and with
   each order that ends a turn, so a planner that was replaced is recognised.
4. The *fence* is the lowest run whose commands may start.  It is raised when a turn ends, however it ends, and by a
   quarantine; a takeover does not raise it, because the commands of the turn stay valid (INV-503).  It never falls.
5. A *control* is ordered by a person, or by the mesh on a person's behalf.  Its receipt is stored with it, and its record
   is also a wake-up.  All other changes are the planner's.
6. Sets such as "ends a turn" are derived from the table and never written by hand.

The table in docs/wire-format.md is generated from this one (`as_markdown`); a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from anchorwatch.core.anchor import Anchor, Fence, Status
from anchorwatch.core.errors import Refused
from anchorwatch.core.records import Kind


class To(StrEnum):
    """Target statuses that depend on the anchor."""

    SAME = "unchanged"
    REST = "idle; paused stays paused"
    RESUME = "active with a turn, else idle"


@dataclass(frozen=True, slots=True)
class Transition:
    """One row.

    ``sources``: the statuses in which the change is allowed; ``to``: the status after it. ``run`` and ``generation`` are
    added. ``fence``: it is raised to the run after the current one. ``ends_turn``: a running turn ends.
    ``control``: ordered by a person; its record is also a wake-up.
    """

    sources: frozenset[Status]
    to: Status | To = To.SAME
    run: int = 0
    generation: int = 0
    fence: bool = False
    ends_turn: bool = False
    control: bool = False


IDLE: Final[frozenset[Status]] = frozenset({"idle"})
ACTIVE: Final[frozenset[Status]] = frozenset({"active"})
PAUSED: Final[frozenset[Status]] = frozenset({"paused"})
QUARANTINED: Final[frozenset[Status]] = frozenset({"quarantined"})
LIVING: Final = IDLE | ACTIVE | PAUSED

TRANSITIONS: Final[Mapping[Kind, Transition]] = {
    Kind.CREATED: Transition(frozenset(), to="idle", control=True),
    Kind.ACQUIRED: Transition(IDLE, to="active", run=1, generation=1),
    Kind.TAKEN_OVER: Transition(ACTIVE, to="active", generation=1),
    Kind.TURN_ENDED: Transition(ACTIVE, to="idle", fence=True, ends_turn=True),
    Kind.INPUTS_REFUSED: Transition(IDLE | PAUSED),
    Kind.EMERGENCY_OBSERVED: Transition(ACTIVE),
    Kind.CANCELLED: Transition(
        ACTIVE | PAUSED, to=To.REST, generation=1, fence=True, ends_turn=True, control=True
    ),
    Kind.PAUSED: Transition(IDLE | ACTIVE, to="paused", control=True),
    Kind.RESUMED: Transition(PAUSED, to=To.RESUME, control=True),
    Kind.DELETED: Transition(LIVING, to="deleted", generation=1, fence=True, ends_turn=True, control=True),
    Kind.QUARANTINED: Transition(LIVING | QUARANTINED, to="quarantined", fence=True, control=True),
    # A repair of a session that still runs accepts a loss and changes nothing else: `repaired` decides which one it is.
    Kind.REPAIRED: Transition(LIVING | QUARANTINED, generation=1, fence=True, ends_turn=True, control=True),
    Kind.DIRECTIVES: Transition(LIVING, control=True),
    Kind.STEERED: Transition(ACTIVE | PAUSED, control=True),
    Kind.WAKES_CLEARED: Transition(LIVING, control=True),
    Kind.EMERGENCY_ENDED: Transition(LIVING, control=True),
    Kind.RESET: Transition(LIVING, to=To.REST, generation=1, fence=True, ends_turn=True, control=True),
    Kind.RESET_UNDONE: Transition(LIVING, control=True),
}

CONTROLS: Final = frozenset(kind for kind, row in TRANSITIONS.items() if row.control)
"""Changes that people order; each is also a wake-up."""
ENDS_TURN: Final = frozenset(kind for kind, row in TRANSITIONS.items() if row.ends_turn)
"""Changes that end the running turn, if their anchor has none."""
HOLDS_TURN: Final = frozenset(
    kind for kind, row in TRANSITIONS.items() if row.to == "active" and row.generation
)
"""Changes by which a planner takes a turn."""


def changed(anchor: Anchor, kind: Kind, hint: str = "") -> Anchor:
    """The anchor after a change of this kind, as far as the table says: status, run, generation and fence.

    Raises:
        Refused: the session's status does not allow it. ``hint``: what to do about it.
    """
    row = TRANSITIONS[kind]
    if anchor.status not in row.sources:
        raise Refused(f"the session is {anchor.status}", hint=hint)
    return replace(
        anchor,
        status=_status(row.to, anchor),
        run_id=anchor.run_id + row.run,
        generation=anchor.generation + row.generation,
        fence=Fence(max(anchor.fence.run, anchor.run_id + 1)) if row.fence else anchor.fence,
    )


def _status(to: Status | To, anchor: Anchor) -> Status:
    match to:
        case To.SAME:
            return anchor.status
        case To.REST:
            return "paused" if anchor.status == "paused" else "idle"
        case To.RESUME:
            return "active" if anchor.turn else "idle"
        case _:
            return to


def as_markdown() -> str:
    """The table for docs/wire-format.md."""
    head = "| change | allowed when | status after | run | generation | fence | ends the turn | control |\n"
    return head + "| --- | --- | --- | --- | --- | --- | --- | --- |\n" + "".join(map(_line, TRANSITIONS))


def _line(kind: Kind) -> str:
    row = TRANSITIONS[kind]
    cells = (
        f"`{kind}`",
        ", ".join(sorted(row.sources)) or "no session exists",
        row.to,
        f"+ {row.run}" if row.run else "–",
        f"+ {row.generation}" if row.generation else "–",
        "run + 1" if row.fence else "–",
        "yes" if row.ends_turn else "–",
        "yes" if row.control else "–",
    )
    return f"| {' | '.join(cells)} |\n"
