"""What people order, decided: state + order -> the one change of the anchor that carries it out.

A turn that an order ends is ended by the fence: none of its commands starts any more, its planner is refused, and
what it took is consumed. An order that means a turn names it, and changes nothing once that turn has ended.
"""

from __future__ import annotations

from typing import Any, assert_never

from anchorwatch.core.anchor import Anchor, Fence
from anchorwatch.core.errors import (
    BadInput,
    ChangedSince,
    NotFound,
    Refused,
    SessionQuarantined,
    TurnNotActive,
)
from anchorwatch.core.records import Kind
from anchorwatch.core.session.commands import ClearWakes, Control, Direct, Order, Reset, Steer, UndoReset
from anchorwatch.core.session.events import AnchorChanged
from anchorwatch.core.session.quarantine import quarantined
from anchorwatch.core.session.rest import disposed, look_again, rest
from anchorwatch.core.session.state import SessionState

DIRECTIVES_MAX = 32
DISPOSED_NAMED_MAX = 100
"""So many of the inputs that an order disposes of are named in its record; all are counted."""


def carry_out(state: SessionState, anchor: Anchor, order: Order) -> AnchorChanged:
    """The change that the order makes.

    Raises:
        Refused: the session's state does not allow it. SessionQuarantined, TurnNotActive, ChangedSince. NotFound: what
        is to be removed is not there. BadInput: it would have too many objectives or constraints.
    """
    if anchor.status == "quarantined":
        raise SessionQuarantined(
            f"the session {anchor.session} is quarantined: its journal is damaged",
            hint=f"`anchorwatch journal verify {anchor.session}` says what, `anchorwatch repair {anchor.session}` mends it",
        )
    match order:
        case Control():
            return _control(state, anchor, order)
        case Direct():
            return _direct(anchor, order)
        case Steer():
            return _steer(anchor, order)
        case ClearWakes():
            return _clear_wakes(state, anchor, order)
        case Reset():
            return _reset(state, anchor, order)
        case UndoReset():
            return _undo_reset(state, anchor, order)
        case _:
            assert_never(order)


def _changed(kind: str, order: Order, after: Anchor, reason: str = "", **more: Any) -> AnchorChanged:  # noqa: ANN401 - plain data
    return AnchorChanged(
        kind, after, order.at_ms, reason=reason, by=order.by, control_id=order.control_id, more=more
    )


def _with(anchor: Anchor, **changes: Any) -> Anchor:  # noqa: ANN401 - the anchor's own fields
    return anchor.model_copy(update=changes)


def _control(state: SessionState, anchor: Anchor, order: Control) -> AnchorChanged:
    match order.kind:
        case Kind.PAUSED:
            if anchor.status not in ("idle", "active"):
                raise Refused(
                    f"the session is {anchor.status}",
                    hint=f"`anchorwatch resume {anchor.session}` lets it go on",
                )
            after = _with(anchor, status="paused")
        case Kind.RESUMED:
            if anchor.status != "paused":
                raise Refused(
                    f"the session is {anchor.status}, not paused",
                    hint=f"`anchorwatch show {anchor.session}` says what else may hold it",
                )
            after = _with(anchor, status="active" if anchor.turn else "idle")
        case Kind.QUARANTINED:
            after = quarantined(anchor)
        case Kind.CANCELLED:
            after = _cancelled(state, anchor, order)
        case Kind.DELETED:
            after = _deleted(state, anchor, order)
        case _:
            raise Refused(f"{order.kind!r} is no control")
    return _changed(order.kind, order, after, order.reason)


def _cancelled(state: SessionState, anchor: Anchor, order: Control) -> Anchor:
    _check_running(anchor, order.turn_id)
    return _with(anchor, **_fenced_off(state, anchor, order.reason, order.at_ms, order.check_in_ms))


def _deleted(state: SessionState, anchor: Anchor, order: Control) -> Anchor:
    ended = rest(state, anchor, "cancelled", order.reason, order.at_ms) if anchor.turn else {}
    fenced = {
        "fence": Fence(run=anchor.run_id + 1),
        "generation": anchor.generation + 1,
        "status": "deleted",
        "next_check_at": None,
    }
    return _with(anchor, **{**ended, **fenced})


def _fenced_off(
    state: SessionState, anchor: Anchor, reason: str, at_ms: int, check_in_ms: int
) -> dict[str, Any]:
    """What ends the running turn, if there is one, and keeps every command so far from starting."""
    ended = rest(state, anchor, "cancelled", reason, at_ms) if anchor.turn else {}
    return {
        **ended,
        "fence": Fence(run=anchor.run_id + 1),
        "generation": anchor.generation + 1,
        # Who paused it has not asked for another turn yet.
        "status": "paused" if anchor.status == "paused" else "idle",
        **look_again(anchor, at_ms, check_in_ms),
    }


def _check_running(anchor: Anchor, turn_id: str | None) -> None:
    if anchor.turn is None or (turn_id is not None and turn_id != anchor.turn.id):
        which = f"turn {turn_id}" if turn_id else "a turn"
        raise TurnNotActive(f"{which} is not running", hint="nothing was changed")


def _direct(anchor: Anchor, order: Direct) -> AnchorChanged:
    before: tuple[str, ...] = getattr(anchor, order.which)
    match order.change:
        case "set":
            after = tuple(dict.fromkeys(order.items))
        case "add":
            if all(item in before for item in order.items):
                raise Refused(
                    f"it stands among the {order.which} already",
                    hint=f"`anchorwatch anchor {anchor.session}` shows them, word for word",
                )
            after = tuple(dict.fromkeys((*before, *order.items)))
        case "remove":
            missing = [item for item in order.items if item not in before]
            if missing:
                raise NotFound(
                    f"{missing[0][:80]!r} is none of the {order.which}",
                    hint=f"`anchorwatch anchor {anchor.session}` shows them, word for word",
                )
            after = tuple(item for item in before if item not in order.items)
        case _:
            assert_never(order.change)
    if len(after) > DIRECTIVES_MAX:
        raise BadInput(
            f"the session would have {len(after)} {order.which}, the limit is {DIRECTIVES_MAX}",
            hint="remove some first",
        )
    return _changed(
        Kind.DIRECTIVES,
        order,
        _with(anchor, **{order.which: after}),
        order.reason,
        which=order.which,
        change=order.change,
    )


def _steer(anchor: Anchor, order: Steer) -> AnchorChanged:
    _check_running(anchor, order.turn_id)
    return _changed(Kind.STEERED, order, anchor, text=order.text)


def _superseded(state: SessionState, through: int) -> dict[str, Any]:
    """What is said of the inputs that an order disposes of."""
    gone = [each for each in state.pending if each.sequence <= through]
    return {
        "count": len(gone),
        "through": through,
        "inputs": [each.input_id for each in gone[:DISPOSED_NAMED_MAX]],
    }


def _clear_wakes(state: SessionState, anchor: Anchor, order: ClearWakes) -> AnchorChanged:
    through = min(order.through, state.read_through)
    if not any(each.sequence <= through for each in state.pending):
        raise Refused(
            "nothing waits", hint=f"`anchorwatch wakes {anchor.session}` shows what became of each wake"
        )
    after = _with(anchor, **disposed(anchor, through))
    return _changed(Kind.WAKES_CLEARED, order, after, order.reason, superseded=_superseded(state, through))


def _reset(state: SessionState, anchor: Anchor, order: Reset) -> AnchorChanged:
    if order.head and order.head != state.head:
        raise ChangedSince(
            "the session has changed since it was shown",
            hint="look again with `reset --dry-run`; under load pause it first",
        )
    through = min(order.through, state.read_through)
    fenced = _with(anchor, **_fenced_off(state, anchor, order.reason, order.at_ms, order.check_in_ms))
    after = _with(fenced, **disposed(fenced, through), reset_count=anchor.reset_count + 1)
    runs = [past.run_id for past in state.history] + ([state.turn.run_id] if state.turn else [])
    return _changed(
        Kind.RESET,
        order,
        after,
        order.reason,
        superseded=_superseded(state, through),
        archived={
            "turns": len(runs),
            "first_run": runs[0] if runs else 0,
            "last_run": runs[-1] if runs else 0,
        },
    )


def _undo_reset(state: SessionState, anchor: Anchor, order: UndoReset) -> AnchorChanged:
    if not state.archives:
        raise Refused(
            "no conversation is archived that could be brought back",
            hint="one can while a conversation that was never reset would still show any of it",
        )
    last = state.archives[-1]
    return _changed(Kind.RESET_UNDONE, order, anchor, order.reason, reset=last.reset, turns=len(last.turns))
