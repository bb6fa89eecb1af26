"""Whether an agent's prompt leaves room in its requests, asked before the agent is defined."""

from __future__ import annotations

import asyncio

from anchorwatch.context.floor import check_floor
from anchorwatch.core.agents import AgentSpec
from anchorwatch.models import registry as models
from anchorwatch.packs import registry as packs
from anchorwatch.settings import Settings


async def check(settings: Settings, agent: AgentSpec) -> None:
    """See that it does.

    Raises:
        BadInput: it does not; the words say by how much. BadSettings: its model is not configured.
    """
    pack = packs.load(agent.pack)
    budget = agent.limits.context_tokens_max or settings.context_tokens_max
    model = models.build(settings, agent, pack)
    try:
        # The first count loads a vocabulary: a third of a second that must hold up no other request.
        await asyncio.to_thread(check_floor, agent, pack, model, budget)
    finally:
        await model.close()
