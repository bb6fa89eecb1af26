"""The loss of the journal's end: what is known of it, and its acceptance."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from anchorwatch_gateway import integrity
from anchorwatch_gateway.bodies import Accept
from anchorwatch_gateway.dependencies import PartsDep
from anchorwatch_gateway.errors import CONFLICT

router = APIRouter(prefix="/api/journal", tags=["operations"])


@router.get("")
async def show(parts: PartsDep) -> dict[str, Any]:
    """Whether the mesh is held since the journal lost its end, what was lost, and which sessions may have lost records."""
    return (await integrity.acceptance(parts).show()).to_json()


@router.post("/accept", responses=CONFLICT)
async def accept(body: Accept, parts: PartsDep) -> dict[str, Any]:
    """Accept the loss that was shown: what may have run is `unknown`, and planners and executors go on.

    ``left`` above 0: so many sessions are still to be repaired; send the same request again.
    """
    return await integrity.accept(parts, body)
