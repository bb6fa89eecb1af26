"""Agents: their versioned definitions; and the models that agents call."""

from __future__ import annotations

import asyncio
from typing import Any

from anchorwatch.context.floor import check_floor
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.errors import BadInput
from anchorwatch.core.names import check_name
from anchorwatch.models import catalog
from anchorwatch.models import registry as models
from anchorwatch.packs import registry as packs
from anchorwatch.settings import Settings
from anchorwatch.topology.subjects import RPC_PLANNER
from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from anchorwatch_gateway.parts import ask
from anchorwatch_gateway.requests import Page, PartsDep, WindowDep, WorkspaceDep, answers, page_of

router = APIRouter(prefix="/api", tags=["agents"])

MODELS_TIMEOUT_S = 10.0


class Correction(BaseModel):
    """How far the local token count falls short of the endpoint's, from its reports."""

    ratio: float
    excess: int
    reports: int


class Prices(BaseModel):
    """The price of a million tokens."""

    prompt: float
    completion: float


class TokenReport(BaseModel):
    """Tokens of the last request: counted here, and reported by the endpoint."""

    counted: int
    reported: int


class ModelFault(BaseModel):
    """The last failure."""

    code: str
    why: str


class AgentModel(BaseModel):
    """A model that agents call, and how it has answered lately."""

    name: str
    model: str
    endpoint: str
    profile: str
    is_llm: bool
    counter: str
    correction: Correction
    context_tokens_max: int
    prices: Prices
    last_report: TokenReport | None
    answered_at: str | None
    failures: int = Field(description="in a row")
    failed_at: str | None
    fault: ModelFault | None
    asked_again_at: str | None = Field(description="until then it is skipped if there is another model")
    agents: list[str]
    problem: str


class UnusableModel(BaseModel):
    """A model that cannot be called as it is configured."""

    name: str
    agents: list[str]
    problem: str


@router.get("/agents")
async def list_agents(parts: PartsDep, workspace: WorkspaceDep, window: WindowDep) -> Page[AgentSpec]:
    """List the current definition of every agent by name."""
    return page_of(await parts.agents.all(workspace), window, lambda agent: agent.name)


@router.get("/agents/{name}")
async def get_agent(parts: PartsDep, workspace: WorkspaceDep, name: str) -> AgentSpec:
    """Show an agent's current definition; ``NAME@VERSION`` shows that version."""
    check_name(name.partition("@")[0], "agent name")
    return await parts.agents.get(workspace, name)


@router.put("/agents/{name}")
async def apply_agent(body: AgentSpec, parts: PartsDep, workspace: WorkspaceDep, name: str) -> AgentSpec:
    """Define the agent. A definition that differs becomes its next version, which new turns use."""
    if body.name != name:
        raise BadInput(
            f"the body names agent {body.name}, the path {name[:80]!r}", hint="use the same name in both"
        )
    parts.agents.check(body)
    await check_prompts_fit(parts.settings, body)
    return await parts.agents.apply(workspace, body)


@router.get("/models", responses=answers(Page[AgentModel | UnusableModel]))
async def list_models(parts: PartsDep, workspace: WorkspaceDep, window: WindowDep) -> JSONResponse:
    """List the models that agents call: endpoint, profile, counter, correction, prices, and recent failures."""
    answer = await ask(
        parts.bus,
        RPC_PLANNER.at(verb="models"),
        {"workspace": workspace},
        service="planner",
        timeout_s=MODELS_TIMEOUT_S,
    )
    page = page_of(answer["result"], window, _model_key)
    return JSONResponse({"data": page.data, "next": page.next})


def _model_key(row: dict[str, Any]) -> str:
    """Unique: of models that cannot be called, each agent has a row."""
    return f"{row['name']} {row.get('model', '')} {row['agents'][0]}"


async def check_prompts_fit(settings: Settings, agent: AgentSpec) -> None:
    """Check that the agent's prompt leaves room in the requests of each of its models.

    Raises:
        BadInput: it does not; the message has the figures. BadSettings: a model is not configured.
    """
    pack = packs.load(agent.pack)
    for name in catalog.in_turn(settings, agent):
        wanted = agent.limits.context_tokens_max or settings.context_tokens_max
        budget = min(wanted, catalog.bound(settings, name) or wanted)
        model = models.build(settings, agent.model_copy(update={"model": name}), pack)
        try:
            # The first count loads a vocabulary, about 0.3 s, which must not block other requests.
            await asyncio.to_thread(check_floor, agent, pack, model, budget)
        finally:
            await model.close()
