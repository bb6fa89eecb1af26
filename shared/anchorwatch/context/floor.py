"""The smallest request of an agent, without a conversation. It is checked when the agent is defined."""

from __future__ import annotations

from anchorwatch.context import prompt
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.errors import BadInput
from anchorwatch.core.facts import Observation
from anchorwatch.core.session.state import SessionState
from anchorwatch.models.port import Model
from anchorwatch.packs.port import Pack

ROOM_SHARE = 0.75
"""Largest share of the budget for role, rules and tools; inputs, steps and the observation need the rest."""


def floor_tokens(agent: AgentSpec, pack: Pack, model: Model) -> int:
    """Tokens of the agent's smallest request: role, rules, objectives, constraints and granted tools."""
    anchor = Anchor(
        workspace="",
        session="",
        agent=agent.at_version,
        objectives=agent.objectives,
        constraints=agent.constraints,
    )
    tools = tuple(tool for tool in pack.tools(agent) if tool.name in agent.grants)
    request = prompt.build(
        SessionState(anchor=anchor, told=anchor),
        agent,
        pack,
        tools,
        Observation("", {}, 0, ""),
        heartbeat_s=0,
    )
    return model.count(request)


def check_floor(agent: AgentSpec, pack: Pack, model: Model, budget: int) -> None:
    """Check that the agent leaves room for its turns. ``budget``: of a request, in tokens.

    Raises:
        BadInput: it does not.
    """
    tokens = floor_tokens(agent, pack, model)
    most = round(budget * ROOM_SHARE)
    if tokens > most:
        raise BadInput(
            f"role, rules and tools of {agent.name} take {tokens} of the {budget} tokens of a request; the limit is {most}",
            hint="grant fewer tools, shorten objectives, or raise context_tokens_max (ANCHORWATCH_CONTEXT_TOKENS_MAX)",
        )
