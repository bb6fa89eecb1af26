"""Dead letters: list, show, retry, drop."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from anchorwatch_gateway import letters
from anchorwatch_gateway.bodies import Drop
from anchorwatch_gateway.dependencies import KEY_HEADER, Key, PartsDep, WorkspaceDep
from anchorwatch_gateway.errors import CONFLICT
from anchorwatch_gateway.replies import Page
from anchorwatch_gateway.routes.turns import WindowDep, Word

router = APIRouter(prefix="/api/dead-letters", tags=["dead letters"])
LetterId = Annotated[str, Path(max_length=200, description="SERVICE-ID, as the list has it")]


@router.get("")
async def listed(
    parts: PartsDep,
    workspace: WorkspaceDep,
    window: WindowDep,
    state: Word = None,
    service: Word = None,
    session: Word = None,
) -> Page:
    """Messages that could not be handled, by the time of their last change."""
    filters = {"state": state, "service": service, "session": session}
    return await letters.page(parts, workspace, window, filters)


@router.get("/{letter}")
async def shown(parts: PartsDep, workspace: WorkspaceDep, letter: LetterId) -> dict[str, Any]:
    """One of them, with what the message says."""
    return await letters.one(parts, workspace, letter)


@router.post("/{letter}/retry", status_code=202, responses=CONFLICT)
async def retry(
    parts: PartsDep, workspace: WorkspaceDep, letter: LetterId, response: Response, key: Key = None
) -> dict[str, Any]:
    """Have the message handled once more, with a full series of tries."""
    told, response.headers[KEY_HEADER] = await letters.order(parts, workspace, letter, "retry", key, "")
    return told


@router.post("/{letter}/drop", responses=CONFLICT)
async def drop(
    parts: PartsDep,
    workspace: WorkspaceDep,
    letter: LetterId,
    response: Response,
    key: Key = None,
    body: Drop | None = None,
) -> dict[str, Any]:
    """Give the message up: it is not tried again."""
    note = body.note if body is not None else ""
    told, response.headers[KEY_HEADER] = await letters.order(parts, workspace, letter, "drop", key, note)
    return told
