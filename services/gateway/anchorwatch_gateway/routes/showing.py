"""What a model would be shown, and what it was shown. From the planner, which is the one that knows."""

from __future__ import annotations

from typing import Any

from anchorwatch.core.names import SessionRef
from anchorwatch.topology.subjects import RPC_PLANNER
from fastapi import APIRouter

from anchorwatch_gateway.asking import ask
from anchorwatch_gateway.bodies import Replay
from anchorwatch_gateway.dependencies import PartsDep, RefDep
from anchorwatch_gateway.parts import Parts

router = APIRouter(prefix="/api/sessions", tags=["sessions"])
CONTEXT_TIMEOUT_S = 15.0


@router.get("/{session}/context")
async def context(parts: PartsDep, ref: RefDep) -> dict[str, Any]:
    """What the next request would hold: every block with its tokens, and what is left out of it. Nothing is sent."""
    return await _ask(parts, ref, "context", CONTEXT_TIMEOUT_S)


@router.post("/{session}/replay")
async def replay(body: Replay, parts: PartsDep, ref: RefDep) -> dict[str, Any]:
    """Make a past turn's requests again, and compare them with what was recorded; with ``model``, ask that one too.

    No call is run and nothing is recorded.
    """
    # Each step asks the other model in its turn.
    timeout_s = CONTEXT_TIMEOUT_S + (parts.settings.model_timeout_s if body.model else 0)
    return await _ask(parts, ref, "replay", timeout_s, turn=body.turn, model=body.model)


async def _ask(
    parts: Parts, ref: SessionRef, verb: str, timeout_s: float, **params: str | None
) -> dict[str, Any]:
    question = {"workspace": ref.workspace, "session": ref.session, **params}
    answer = await ask(parts.bus, RPC_PLANNER.at(verb=verb), question, service="planner", timeout_s=timeout_s)
    result: dict[str, Any] = answer["result"]
    return result
