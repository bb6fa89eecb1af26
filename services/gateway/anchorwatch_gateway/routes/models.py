"""The models that agents ask. From the planner, which is the one that asks them."""

from __future__ import annotations

from anchorwatch.topology.subjects import RPC_PLANNER
from fastapi import APIRouter

from anchorwatch_gateway.asking import ask
from anchorwatch_gateway.dependencies import PartsDep, WorkspaceDep
from anchorwatch_gateway.replies import Page

router = APIRouter(prefix="/api/models", tags=["agents"])
TIMEOUT_S = 10.0


@router.get("")
async def models(parts: PartsDep, workspace: WorkspaceDep) -> Page:
    """Each model that an agent asks: its endpoint, profile, counter and correction, and how it has answered lately."""
    question = {"workspace": workspace}
    answer = await ask(
        parts.bus, RPC_PLANNER.at(verb="models"), question, service="planner", timeout_s=TIMEOUT_S
    )
    return Page(data=answer["result"], next=None)
