"""People's orders: state + order -> the one change of the anchor that carries it out.

An order ends a turn by raising the fence: none of its commands starts, its planner is refused, and its inputs are
consumed. An order for a turn names that turn and changes nothing after it has ended (INV-412).
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, assert_never

from anchorwatch.core.anchor import Anchor
from anchorwatch.core.errors import (
    BadInput,
    ChangedSince,
    NotFound,
    Refused,
    SessionQuarantined,
    TurnNotActive,
)
from anchorwatch.core.records import Kind
from anchorwatch.core.session.commands import (
    CRITICAL_LINES,
    ClearWakes,
    Control,
    Direct,
    EndEmergency,
    Order,
    Relabel,
    Reset,
    Steer,
    UndoReset,
)
from anchorwatch.core.session.critical import CRITICAL, all_lines, critical_lines
from anchorwatch.core.session.events import AnchorChanged
from anchorwatch.core.session.state import SessionState
from anchorwatch.core.session.transitions import changed
from anchorwatch.core.session.turn_end import check_again, dispose, end_turn

DIRECTIVES_MAX = 32
DISPOSED_NAMED_MAX = 100
"""Inputs that an order's record names of those it disposes of; all are counted."""


def carry_out(state: SessionState, anchor: Anchor, order: Order) -> AnchorChanged:
    """The change that the order makes.

    Raises:
        Refused: the session's state does not allow it. SessionQuarantined, TurnNotActive, ChangedSince. NotFound: an
        item to remove does not exist. BadInput: there would be too many objectives or constraints.
    """
    if anchor.status == "quarantined":
        raise SessionQuarantined(
            f"the session {anchor.session} is quarantined: its journal is damaged",
            hint=f"see `anchorwatch journal verify {anchor.session}`; `anchorwatch repair {anchor.session}` repairs it",
        )
    match order:
        case Control():
            return _control(state, anchor, order)
        case Direct():
            return _direct(anchor, order)
        case Relabel():
            return _relabel(state, anchor, order)
        case Steer():
            return _steer(anchor, order)
        case ClearWakes():
            return _clear_wakes(state, anchor, order)
        case Reset():
            return _reset(state, anchor, order)
        case UndoReset():
            return _undo_reset(state, anchor, order)
        case EndEmergency():
            return _end_emergency(anchor, order)
        case _:
            assert_never(order)


def _changed(kind: Kind, order: Order, after: Anchor, reason: str = "", **more: Any) -> AnchorChanged:  # noqa: ANN401 - plain data
    return AnchorChanged(
        kind, after, order.at_ms, reason=reason, by=order.by, control_id=order.control_id, more=more
    )


def _control(state: SessionState, anchor: Anchor, order: Control) -> AnchorChanged:
    match order.kind:
        case Kind.PAUSED:
            hint = f"`anchorwatch resume {anchor.session}` resumes it" if anchor.status == "paused" else ""
            after = changed(anchor, order.kind, hint)
        case Kind.RESUMED:
            after = changed(anchor, order.kind, f"`anchorwatch show {anchor.session}` says what holds it")
        case Kind.QUARANTINED:
            after = changed(anchor, order.kind)
        case Kind.CANCELLED:
            _check_running(anchor, order.turn_id)
            after = check_again(_ended(state, anchor, order), order.at_ms, order.check_in_ms)
        case Kind.DELETED:
            after = replace(_ended(state, anchor, order), next_check_at=None, emergency=None)
        case _:
            raise Refused(f"{order.kind!r} is not a control order")
    return _changed(order.kind, order, after, order.reason)


def _ended(state: SessionState, anchor: Anchor, order: Control | Reset) -> Anchor:
    """The anchor after an order that ends the running turn, if there is one, and fences off every earlier command."""
    kind = Kind.RESET if isinstance(order, Reset) else order.kind
    after = changed(anchor, kind)
    return end_turn(state, after, "cancelled", order.reason, order.at_ms) if anchor.turn else after


def _check_running(anchor: Anchor, turn_id: str | None) -> None:
    if anchor.turn is None or (turn_id is not None and turn_id != anchor.turn.id):
        which = f"turn {turn_id}" if turn_id else "a turn"
        raise TurnNotActive(f"{which} is not running", hint="nothing changed")


def _direct(anchor: Anchor, order: Direct) -> AnchorChanged:
    before = anchor.objectives if order.which == "objectives" else anchor.constraints
    match order.change:
        case "set":
            after = tuple(dict.fromkeys(order.items))
        case "add":
            if all(item in before for item in order.items) and not order.rule:
                raise Refused(
                    f"all of them are {order.which} already",
                    hint=f"`anchorwatch anchor {anchor.session}` lists them",
                )
            after = tuple(dict.fromkeys((*before, *order.items)))
        case "remove":
            missing = [item for item in order.items if item not in before]
            if missing:
                raise NotFound(
                    f"{missing[0][:80]!r} is not one of the {order.which}",
                    hint=f"`anchorwatch anchor {anchor.session}` lists them",
                )
            after = tuple(item for item in before if item not in order.items)
        case _:
            assert_never(order.change)
    if len(after) > DIRECTIVES_MAX:
        raise BadInput(
            f"the session would have {len(after)} {order.which}, the limit is {DIRECTIVES_MAX}",
            hint="remove some first",
        )
    if order.which == "objectives":
        changed_anchor = replace(anchor, objectives=after)
    else:
        rules = {**anchor.constraint_rules, **(dict.fromkeys(order.items, order.rule) if order.rule else {})}
        kept = {text: rule for text, rule in rules.items() if text in after}
        changed_anchor = replace(anchor, constraints=after, constraint_rules=kept)
    return _changed(
        Kind.DIRECTIVES,
        order,
        changed_anchor,
        order.reason,
        which=order.which,
        change=order.change,
        **({"rule": order.rule} if order.rule else {}),
    )


def _relabel(state: SessionState, anchor: Anchor, order: Relabel) -> AnchorChanged:
    hint = f"`anchorwatch critical list {anchor.session}` lists them"
    if all(each.text != order.line for each in state.critical):
        if any(each.text == order.line for each in all_lines(state)):
            raise Refused(
                "the message with that line still waits for a turn", hint="try again after the turn"
            )
        raise NotFound(f"{order.line[:80]!r} is not a labelled line of the session", hint=hint)
    if order.text and any(each.text == order.text for each in state.critical):
        raise Refused("the session has that labelled line already", hint=hint)
    if order.text and critical_lines(order.text) != [order.text]:
        raise BadInput(f"the text must be one line that begins with {CRITICAL}", hint="withdraw it instead")
    more = {"line": order.line, **({"text": order.text} if order.text else {})}
    return _changed(Kind.DIRECTIVES, order, anchor, order.reason, which=CRITICAL_LINES, **more)


def _steer(anchor: Anchor, order: Steer) -> AnchorChanged:
    _check_running(anchor, order.turn_id)
    return _changed(Kind.STEERED, order, anchor, text=order.text)


def _superseded(state: SessionState, through: int) -> dict[str, Any]:
    """What the record says of the inputs that an order disposes of."""
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
            "no inputs are pending",
            hint=f"`anchorwatch wakes {anchor.session}` lists each wake-up's disposition",
        )
    after = dispose(anchor, through)
    return _changed(Kind.WAKES_CLEARED, order, after, order.reason, superseded=_superseded(state, through))


def _reset(state: SessionState, anchor: Anchor, order: Reset) -> AnchorChanged:
    if order.head and order.head != state.head:
        raise ChangedSince(
            "the session has changed since the preview",
            hint="repeat `reset --dry-run`; pause a busy session first",
        )
    through = min(order.through, state.read_through)
    ended = check_again(_ended(state, anchor, order), order.at_ms, order.check_in_ms)
    after = replace(dispose(ended, through), reset_count=anchor.reset_count + 1)
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
            "no archived conversation can be restored",
            hint="one can be restored while a conversation without the reset would still show part of it",
        )
    last = state.archives[-1]
    return _changed(Kind.RESET_UNDONE, order, anchor, order.reason, reset=last.reset, turns=len(last.turns))


def _end_emergency(anchor: Anchor, order: EndEmergency) -> AnchorChanged:
    if anchor.emergency is None:
        raise Refused(
            "the session has no open emergency", hint=f"`anchorwatch show {anchor.session}` shows it"
        )
    after = replace(changed(anchor, Kind.EMERGENCY_ENDED), emergency=None)
    return _changed(Kind.EMERGENCY_ENDED, order, after, order.reason, emergency=asdict(anchor.emergency))
