"""The models that agents ask. From the planner, which is the one that asks them."""

from __future__ import annotations

from typing import Any

from anchorwatch.topology.subjects import RPC_PLANNER
from fastapi import APIRouter

from anchorwatch_gateway.asking import ask
from anchorwatch_gateway.dependencies import PartsDep, WorkspaceDep
from anchorwatch_gateway.paging import page_of
from anchorwatch_gateway.replies import Page
from anchorwatch_gateway.routes.turns import WindowDep

router = APIRouter(prefix="/api/models", tags=["agents"])
TIMEOUT_S = 10.0


@router.get("")
async def models(parts: PartsDep, workspace: WorkspaceDep, window: WindowDep) -> Page:
    """Each model that an agent asks: its endpoint, profile, counter and correction, and how it has answered lately."""
    question = {"workspace": workspace}
    answer = await ask(
        parts.bus, RPC_PLANNER.at(verb="models"), question, service="planner", timeout_s=TIMEOUT_S
    )
    return page_of(answer["result"], window, _key)


def _key(row: dict[str, Any]) -> str:
    """Of models that cannot be asked, each agent has a row of its own."""
    return f"{row['name']} {row.get('model', '')} {row['agents'][0]}"
