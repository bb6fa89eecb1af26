"""Whether a session's journal is whole."""

from __future__ import annotations

from typing import Any

from anchorwatch.journal.integrity.verify import verify as examine
from fastapi import APIRouter

from anchorwatch_gateway.dependencies import PartsDep, RefDep

router = APIRouter(prefix="/api/sessions", tags=["sessions"])


@router.get("/{session}/verify")
async def verify(parts: PartsDep, ref: RefDep) -> dict[str, Any]:
    """Every record of the session, read and checked; ``whole`` is false where something is wrong that nobody accepted."""
    examination = await examine(parts.bus, parts.committer.stream, parts.journal, ref)
    return examination.to_json()
