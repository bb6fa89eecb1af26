"""Kill switches: list them, turn them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from anchorwatch_gateway import kill_switches
from anchorwatch_gateway.bodies import Kill
from anchorwatch_gateway.dependencies import KEY_HEADER, Key, PartsDep, WorkspaceDep
from anchorwatch_gateway.errors import CONFLICT

router = APIRouter(prefix="/api/kill-switches", tags=["controls"])


@router.get("")
async def listed(parts: PartsDep, workspace: WorkspaceDep) -> dict[str, Any]:
    """Every kill switch that was ever turned, and whether it is on."""
    return {"data": await kill_switches.listed(parts, workspace), "next": None}


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
