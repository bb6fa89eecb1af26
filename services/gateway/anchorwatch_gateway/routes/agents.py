"""Agents: versioned definitions."""

from __future__ import annotations

from typing import Any

from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.errors import BadInput
from anchorwatch.core.names import check_name
from fastapi import APIRouter

from anchorwatch_gateway import floors
from anchorwatch_gateway.dependencies import PartsDep, WorkspaceDep
from anchorwatch_gateway.paging import page_of
from anchorwatch_gateway.replies import Page
from anchorwatch_gateway.routes.turns import WindowDep

router = APIRouter(prefix="/api/agents", tags=["agents"])


@router.get("")
async def agents(parts: PartsDep, workspace: WorkspaceDep, window: WindowDep) -> Page:
    """The current definition of every agent, by name."""
    found = await parts.agents.all(workspace)
    return page_of([_show(spec) for spec in found], window, lambda row: str(row["name"]))


@router.get("/{name}")
async def agent(parts: PartsDep, workspace: WorkspaceDep, name: str) -> dict[str, Any]:
    """An agent's current definition; ``NAME@VERSION`` is that version."""
    check_name(name.partition("@")[0], "agent name")
    return _show(await parts.agents.get(workspace, name))


@router.put("/{name}")
async def apply(body: AgentSpec, parts: PartsDep, workspace: WorkspaceDep, name: str) -> dict[str, Any]:
    """Define the agent; a definition that differs becomes its next version, which new turns use."""
    if body.name != name:
        raise BadInput(f"the body names agent {body.name}, the address {name[:80]!r}", hint="let them agree")
    parts.agents.check(body)
    await floors.check(parts.settings, body)
    return _show(await parts.agents.apply(workspace, body))


def _show(spec: AgentSpec) -> dict[str, Any]:
    return spec.model_dump(mode="json")
