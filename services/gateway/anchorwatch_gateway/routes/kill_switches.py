"""Kill switches: list them, turn them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from anchorwatch_gateway import kill_switches
from anchorwatch_gateway.bodies import Kill
from anchorwatch_gateway.dependencies import KEY_HEADER, Key, PartsDep, WorkspaceDep
from anchorwatch_gateway.errors import CONFLICT
from anchorwatch_gateway.paging import page_of
from anchorwatch_gateway.replies import Page
from anchorwatch_gateway.routes.turns import WindowDep

router = APIRouter(prefix="/api/kill-switches", tags=["controls"])


@router.get("")
async def listed(parts: PartsDep, workspace: WorkspaceDep, window: WindowDep) -> Page:
    """Every kill switch that was ever turned, by scope and name, and whether it is on."""
    found = await kill_switches.listed(parts, workspace)
    return page_of(found, window, lambda row: f"{row['scope']}/{row['name'] or ''}")


@router.post("", responses=CONFLICT)
async def turn(
    body: Kill,
    parts: PartsDep,
    workspace: WorkspaceDep,
    request: Request,
    response: Response,
    key: Key = None,
) -> dict[str, Any]:
    """Turn one on or off. While it is on, no turn of its sessions starts, and no command."""
    told, response.headers[KEY_HEADER] = await kill_switches.turn(
        parts, workspace, body, key, request.state.json
    )
    return told
