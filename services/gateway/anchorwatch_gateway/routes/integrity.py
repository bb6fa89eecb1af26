"""Whether a session's journal is whole, and its repair."""

from __future__ import annotations

from typing import Any

from anchorwatch.journal.integrity.verify import verify as examine
from fastapi import APIRouter

from anchorwatch_gateway import integrity
from anchorwatch_gateway.bodies import Repair
from anchorwatch_gateway.dependencies import PartsDep, RefDep
from anchorwatch_gateway.errors import CONFLICT

router = APIRouter(prefix="/api/sessions", tags=["sessions"])


@router.get("/{session}/verify")
async def verify(parts: PartsDep, ref: RefDep) -> dict[str, Any]:
    """Every record of the session, read and checked; ``whole`` is false where something is wrong that nobody accepted."""
    examination = await examine(parts.bus, parts.committer.stream, parts.journal, ref)
    return examination.to_json()


@router.get("/{session}/repair", responses=CONFLICT)
async def plan(parts: PartsDep, ref: RefDep) -> dict[str, Any]:
    """What a repair would do now, and what each finding will mean; nothing is done."""
    return (await integrity.repairer(parts).plan(ref)).to_json()


@router.post("/{session}/repair", responses=CONFLICT)
async def repair(body: Repair, parts: PartsDep, ref: RefDep) -> dict[str, Any]:
    """Carry out the plan that was shown; refused (`changed_since`) when the session is not as it was then."""
    return await integrity.carry_out(parts, ref, body)
