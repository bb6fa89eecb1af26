"""Whether an agent's prompt leaves room in its requests, asked before the agent is defined."""

from __future__ import annotations

import asyncio

from anchorwatch.context.floor import check_floor
from anchorwatch.core.agents import AgentSpec
from anchorwatch.models import catalog
from anchorwatch.models import registry as models
from anchorwatch.packs import registry as packs
from anchorwatch.settings import Settings


async def check(settings: Settings, agent: AgentSpec) -> None:
    """See that it does.

    Raises:
        BadInput: it does not; the words say by how much. BadSettings: a model of it is not configured.
    """
    for name in catalog.in_turn(settings, agent):
        await _check(settings, agent, name)


async def _check(settings: Settings, agent: AgentSpec, name: str) -> None:
    pack = packs.load(agent.pack)
    wanted = agent.limits.context_tokens_max or settings.context_tokens_max
    budget = min(wanted, catalog.bound(settings, name) or wanted)
    model = models.build(settings, agent.model_copy(update={"model": name}), pack)
    try:
        # The first count loads a vocabulary: a third of a second that must hold up no other request.
        await asyncio.to_thread(check_floor, agent, pack, model, budget)
    finally:
        await model.close()
