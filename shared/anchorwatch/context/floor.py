"""What no rung makes smaller: an agent's prompt without a conversation. Checked when it is defined, not in a loop of turns."""

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
"""Of the budget: the most that role, rules and tools may take; wakes, steps and the observation need the rest."""


def floor_tokens(agent: AgentSpec, pack: Pack, model: Model) -> int:
    """Tokens of the agent's smallest request: role, rules, objectives, constraints and granted tools, and nothing to be seen."""
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
    """See that the agent leaves room for what its turns are about. ``budget``: of a request, in tokens.

    Raises:
        BadInput: it does not.
    """
    tokens = floor_tokens(agent, pack, model)
    most = round(budget * ROOM_SHARE)
    if tokens > most:
        raise BadInput(
            f"role, rules and tools of {agent.name} take {tokens} of the {budget} tokens of a request; {most} is the most",
            hint="grant fewer tools, shorten objectives, or raise context_tokens_max (ANCHORWATCH_CONTEXT_TOKENS_MAX)",
        )
