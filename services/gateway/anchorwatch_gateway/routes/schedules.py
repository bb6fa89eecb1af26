"""Schedules: list, show, make, pause, resume, delete."""

from __future__ import annotations

from typing import Annotated, Any

from anchorwatch.core.names import check_name
from fastapi import APIRouter, Depends, Path, Query, Request, Response

from anchorwatch_gateway import schedules
from anchorwatch_gateway.bodies import NewSchedule, Reason
from anchorwatch_gateway.dependencies import KEY_HEADER, Key, PartsDep, WorkspaceDep
from anchorwatch_gateway.errors import CONFLICT
from anchorwatch_gateway.paging import page_of
from anchorwatch_gateway.replies import Page
from anchorwatch_gateway.routes.turns import WindowDep

router = APIRouter(prefix="/api/schedules", tags=["schedules"])


async def get_name(name: Annotated[str, Path(description="the schedule's name")]) -> str:
    """The schedule that a request speaks of."""
    return check_name(name, "schedule name")


NameDep = Annotated[str, Depends(get_name)]
SessionName = Annotated[str | None, Query(description="only those of this session")]


@router.get("")
async def listed(
    parts: PartsDep, workspace: WorkspaceDep, window: WindowDep, session: SessionName = None
) -> Page:
    """The schedules that were not deleted, by name, each with its next five occurrences."""
    return page_of(await schedules.listed(parts, workspace, session), window, lambda row: str(row["name"]))


@router.get("/{name}")
async def show(parts: PartsDep, workspace: WorkspaceDep, name: NameDep) -> dict[str, Any]:
    """A schedule with its next five occurrences."""
    return await schedules.shown_one(parts, workspace, name)


@router.post("", status_code=201, responses=CONFLICT)
async def create(
    body: NewSchedule,
    parts: PartsDep,
    workspace: WorkspaceDep,
    request: Request,
    response: Response,
    key: Key = None,
) -> dict[str, Any]:
    """Make a schedule: its session is woken at each occurrence, and told its text."""
    told, response.headers[KEY_HEADER] = await schedules.create(
        parts, workspace, body, key, request.state.json
    )
    return told


@router.post("/{name}/pause", responses=CONFLICT)
async def pause(
    parts: PartsDep,
    workspace: WorkspaceDep,
    name: NameDep,
    response: Response,
    body: Reason | None = None,
    key: Key = None,
) -> dict[str, Any]:
    """Let nothing come of it until it is resumed."""
    told, response.headers[KEY_HEADER] = await schedules.order(
        parts, workspace, "pause", name, body.reason if body else "", key
    )
    return told


@router.post("/{name}/resume", responses=CONFLICT)
async def resume(
    parts: PartsDep,
    workspace: WorkspaceDep,
    name: NameDep,
    response: Response,
    body: Reason | None = None,
    key: Key = None,
) -> dict[str, Any]:
    """Go on; what came while it was paused is not made up for."""
    told, response.headers[KEY_HEADER] = await schedules.order(
        parts, workspace, "resume", name, body.reason if body else "", key
    )
    return told


@router.delete("/{name}", responses=CONFLICT)
async def delete(
    parts: PartsDep,
    workspace: WorkspaceDep,
    name: NameDep,
    response: Response,
    reason: Annotated[str, Query(max_length=500)] = "",
    key: Key = None,
) -> dict[str, Any]:
    """Delete it; an occurrence that waits already still has its turn."""
    told, response.headers[KEY_HEADER] = await schedules.order(parts, workspace, "delete", name, reason, key)
    return told
