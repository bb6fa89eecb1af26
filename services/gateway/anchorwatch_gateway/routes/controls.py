"""What people order of a session: pause, resume, cancel, steer, objectives, constraints, wakes, reset, delete."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import (
    ClearWakes,
    Direct,
    Order,
    Steer,
    UndoReset,
)
from anchorwatch.core.session.commands import Control as ControlOrder
from fastapi import APIRouter, Depends, Request, Response

from anchorwatch_gateway import controls
from anchorwatch_gateway.bodies import Cancel, Clear, Directives, Reason, ResetBody, SteerBody
from anchorwatch_gateway.controls import Given, Make
from anchorwatch_gateway.dependencies import KEY_HEADER, Key, PartsDep, RefDep
from anchorwatch_gateway.errors import CONFLICT
from anchorwatch_gateway.parts import Parts
from anchorwatch_gateway.replies import Control, Shown

router = APIRouter(prefix="/api/sessions", tags=["controls"], responses=CONFLICT)


class Desk:
    """Takes one order, and sets the header that names its key."""

    def __init__(
        self, parts: Parts, ref: SessionRef, request: Request, response: Response, key: str | None
    ) -> None:
        self._parts = parts
        self._ref = ref
        self._body: Any = getattr(request.state, "json", None) or {}
        self._response = response
        self._key = key

    async def carry_out(self, verb: str, make: Make) -> Control:
        """Have it done."""
        request = controls.Request(self._ref, verb, self._key, self._body)
        answer = await controls.order(self._parts, request, make)
        self._response.headers[KEY_HEADER] = answer.idempotency_key
        return answer

    async def control(self, verb: str, kind: Kind, reason: str, turn: str | None = None) -> Control:
        """Have one of the plain controls done."""

        def make(state: SessionState, given: Given) -> Order:
            return ControlOrder(
                kind,
                given.by,
                given.at_ms,
                reason,
                _turn_id(state, turn),
                given.control_id,
                given.check_in_ms,
            )

        return await self.carry_out(verb, make)


async def get_desk(
    parts: PartsDep, ref: RefDep, request: Request, response: Response, key: Key = None
) -> Desk:
    """The desk for one order."""
    return Desk(parts, ref, request, response, key)


DeskDep = Annotated[Desk, Depends(get_desk)]


def _turn_id(state: SessionState, turn: str | None) -> str | None:
    """The id of a turn that is named by it, or by its run number."""
    if turn is None or not turn.isdecimal() or state.turn is None:
        return turn
    return state.turn.turn_id if int(turn[:18]) == state.turn.run_id else turn


@router.post("/{session}/pause")
async def pause(desk: DeskDep, body: Reason | None = None) -> Control:
    """Start no turn and no command until it is resumed. What is accepted waits."""
    return await desk.control("pause", Kind.PAUSED, body.reason if body else "")


@router.post("/{session}/resume")
async def resume(desk: DeskDep, body: Reason | None = None) -> Control:
    """Go on."""
    return await desk.control("resume", Kind.RESUMED, body.reason if body else "")


@router.post("/{session}/cancel")
async def cancel(desk: DeskDep, body: Cancel) -> Control:
    """End the running turn that it names. ``never_start``: commands that cannot run any more; ``too_late``: those that may."""
    return await desk.control("cancel", Kind.CANCELLED, body.reason, body.turn)


@router.post("/{session}/steer")
async def steer(desk: DeskDep, body: SteerBody) -> Control:
    """Say something to the running turn that it names: its model is shown it at the next step."""

    def make(state: SessionState, given: Given) -> Order:
        turn = _turn_id(state, body.turn) or ""
        return Steer(given.by, given.at_ms, turn, body.text, given.control_id)

    return await desk.carry_out("steer", make)


@router.post("/{session}/objectives")
async def objectives(desk: DeskDep, body: Directives) -> Control:
    """Set, add or remove objectives."""
    return await _direct(desk, "objectives", body)


@router.post("/{session}/constraints")
async def constraints(desk: DeskDep, body: Directives) -> Control:
    """Set, add or remove constraints."""
    return await _direct(desk, "constraints", body)


async def _direct(desk: Desk, which: Literal["objectives", "constraints"], body: Directives) -> Control:
    def make(state: SessionState, given: Given) -> Order:
        del state
        items = tuple(body.items)
        return Direct(given.by, given.at_ms, which, body.change, items, body.reason, given.control_id)

    return await desk.carry_out(which, make)


@router.post("/{session}/wakes/clear")
async def clear_wakes(desk: DeskDep, body: Clear | None = None) -> Control:
    """Dispose of the inputs that wait, without a reset. A running turn keeps what it took."""
    through, reason = (body.through, body.reason) if body else (None, "")

    def make(state: SessionState, given: Given) -> Order:
        upto = state.read_through if through is None else through
        return ClearWakes(given.by, given.at_ms, upto, reason, given.control_id)

    return await desk.carry_out("wakes clear", make)


@router.get("/{session}/reset")
async def show_reset(parts: PartsDep, ref: RefDep) -> Shown:
    """What a reset would archive, keep and dispose of now, and the confirmation that it needs."""
    return await controls.show_reset(parts, ref)


@router.post("/{session}/reset")
async def reset(desk: DeskDep, body: ResetBody) -> Control:
    """Archive the conversation, and dispose of what waits, as it was shown. A canary turn runs behind it."""
    return await desk.carry_out("reset", controls.reset(body.confirmation, body.reason))


@router.post("/{session}/undo-reset")
async def undo_reset(desk: DeskDep, body: Reason | None = None) -> Control:
    """Bring back the conversation that the last reset archived."""
    reason = body.reason if body else ""

    def make(state: SessionState, given: Given) -> Order:
        del state
        return UndoReset(given.by, given.at_ms, reason, given.control_id)

    return await desk.carry_out("undo-reset", make)


@router.post("/{session}/delete")
async def delete(desk: DeskDep, body: Reason | None = None) -> Control:
    """Delete the session: its turn is cancelled, what waits never runs, and its name is not used again."""
    return await desk.control("delete", Kind.DELETED, body.reason if body else "")
