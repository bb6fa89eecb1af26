"""What a session did: its turns, conversation, timeline and wakes. From memory's projections."""

from __future__ import annotations

from typing import Annotated, Any

from anchorwatch.core.names import SessionRef
from fastapi import APIRouter, Depends, Query, Response

from anchorwatch_gateway import holds, reading
from anchorwatch_gateway.dependencies import AtLeast, Cursor, Limit, Order, PartsDep, RefDep, WorkspaceDep
from anchorwatch_gateway.reading import Window
from anchorwatch_gateway.replies import Page

router = APIRouter(prefix="/api/sessions", tags=["sessions"])


async def get_window(
    limit: Limit = 50, cursor: Cursor = None, order: Order = "asc", at_least: AtLeast = None
) -> Window:
    """Which part of a list."""
    return Window(limit, cursor, order, at_least)


WindowDep = Annotated[Window, Depends(get_window)]
Word = Annotated[str | None, Query(max_length=64)]


@router.get("")
async def sessions(
    parts: PartsDep, workspace: WorkspaceDep, window: WindowDep, response: Response, status: Word = None
) -> Page:
    """The sessions of the workspace, by name."""
    found = await reading.page(
        parts, response, "sessions", window, {"workspace": workspace, "status": status}
    )
    await holds.add(parts, workspace, found.data)
    return found


@router.get("/{session}")
async def session(
    parts: PartsDep, ref: RefDep, response: Response, at_least: AtLeast = None
) -> dict[str, Any]:
    """One session: its anchor, what it waits for, what it costs."""
    found = (await reading.ask(parts, response, "session", _of(ref), at_least)).result
    await holds.add(parts, ref.workspace, [found])
    return found


@router.get("/{session}/turns")
async def turns(
    parts: PartsDep, ref: RefDep, window: WindowDep, response: Response, status: Word = None
) -> Page:
    """The turns of the session."""
    return await reading.page(parts, response, "turns", window, {**_of(ref), "status": status})


@router.get("/{session}/turns/{turn}")
async def turn(
    parts: PartsDep, ref: RefDep, turn: str, response: Response, at_least: AtLeast = None
) -> dict[str, Any]:
    """One turn, by its id or its run number: its wakes, steps, calls and what came of them."""
    params = {**_of(ref), "turn": turn[:128]}
    return (await reading.ask(parts, response, "turn", params, at_least)).result


@router.get("/{session}/items")
async def items(
    parts: PartsDep,
    ref: RefDep,
    window: WindowDep,
    response: Response,
    type: Word = None,  # noqa: A002 - a query parameter
    turn: Word = None,
) -> Page:
    """The conversation: messages, tool calls and results, observations, notes."""
    return await reading.page(parts, response, "items", window, {**_of(ref), "type": type, "turn": turn})


@router.get("/{session}/timeline")
async def timeline(
    parts: PartsDep, ref: RefDep, window: WindowDep, response: Response, turn: Word = None
) -> Page:
    """What happened, in sentences, with why and who."""
    return await reading.page(parts, response, "timeline", window, {**_of(ref), "turn": turn})


@router.get("/{session}/wakes")
async def wakes(
    parts: PartsDep,
    ref: RefDep,
    window: WindowDep,
    response: Response,
    disposition: Word = None,
    kind: Word = None,
) -> Page:
    """Every input, outcome and order, and what became of it; ``pending`` inputs with the time they are due."""
    narrowed = {"disposition": disposition, "kind": kind}
    found = await reading.page(parts, response, "wakes", window, {**_of(ref), **narrowed})
    if any(wake.get("due_at") for wake in found.data):
        session = await reading.ask(parts, response, "session", _of(ref))
        await holds.put_off(parts, session.result, found.data)
    return found


def _of(ref: SessionRef) -> dict[str, str]:
    return {"workspace": ref.workspace, "session": ref.session}
