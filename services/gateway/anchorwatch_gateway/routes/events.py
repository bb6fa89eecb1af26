"""Events: what happened outside."""

from __future__ import annotations

from fastapi import APIRouter

from anchorwatch_gateway import events as work
from anchorwatch_gateway.bodies import NewEvent
from anchorwatch_gateway.dependencies import PartsDep, WorkspaceDep
from anchorwatch_gateway.replies import Published

router = APIRouter(prefix="/api/events", tags=["events"])


@router.post("", status_code=202)
async def publish(body: NewEvent, parts: PartsDep, workspace: WorkspaceDep) -> Published:
    """Publish an event as ``aw.event.WORKSPACE.SOURCE.TYPE``. 202 is sent after it was stored."""
    return await work.publish(parts, workspace, body)
