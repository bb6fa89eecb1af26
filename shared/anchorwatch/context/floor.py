"""The part of a request that no rung shortens: of an agent, checked when it is defined; of a session with its labelled lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anchorwatch.context import prompt
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.errors import BadInput, TooLarge
from anchorwatch.core.facts import Observation
from anchorwatch.core.session.critical import CRITICAL, LABELLED_BYTES_MAX, Labelled
from anchorwatch.core.session.state import SessionState
from anchorwatch.models.port import Model
from anchorwatch.packs.port import Pack

PINNED_SHARE = 0.15
"""Largest share of the budget for all lines of people that are labelled `CRITICAL:`."""
ROOM_SHARE = 0.75
"""Largest share of the budget for role, rules and tools; inputs, steps and the observation need the rest."""


LABELLED_HINT = (
    "every prompt holds these lines: label fewer or shorter ones; `anchorwatch critical` withdraws one"
)
NOTHING_SEEN = Observation("", {}, 0, "")


def floor_tokens(agent: AgentSpec, pack: Pack, model: Model) -> int:
    """Tokens of the agent's smallest request: role, rules, objectives, constraints and granted tools."""
    anchor = Anchor(
        workspace="",
        session="",
        agent=agent.at_version,
        objectives=agent.objectives,
        constraints=agent.constraints,
    )
    return fixed_tokens(SessionState(anchor=anchor, told=anchor), agent, pack, model)


def fixed_tokens(state: SessionState, agent: AgentSpec, pack: Pack, model: Model) -> int:
    """Tokens of the session's request without turns, summary, inputs and observation: what no rung and no summary shortens."""
    tools = tuple(tool for tool in pack.tools(agent) if tool.name in agent.grants)
    bare = state._replace(turn=None, history=(), summary=None)
    return model.count(prompt.build(bare, agent, pack, tools, NOTHING_SEEN, heartbeat_s=0))


def labelled_tokens(lines: Iterable[str], agent: AgentSpec, pack: Pack, model: Model) -> int:
    """Tokens that labelled lines take in the agent's request."""
    anchor = Anchor(workspace="", session="", agent=agent.at_version)
    state = SessionState(anchor=anchor, told=anchor)
    pinned = state._replace(critical=tuple(map(Labelled, lines)))
    return fixed_tokens(pinned, agent, pack, model) - fixed_tokens(state, agent, pack, model)


def check_labelled(lines: Sequence[str], agent: AgentSpec, pack: Pack, model: Model, budget: int) -> None:
    """Check that all labelled lines of a session together stay within their share of ``budget`` tokens.

    Raises:
        TooLarge: they do not; the message has the numbers.
    """
    size = sum(len(line.encode()) for line in lines)
    if size > LABELLED_BYTES_MAX:
        raise TooLarge(
            f"the session would have {len(lines)} lines that begin with {CRITICAL}, {size} bytes; the limit is"
            f" {LABELLED_BYTES_MAX} bytes",
            hint=LABELLED_HINT,
        )
    most, tokens = round(budget * PINNED_SHARE), labelled_tokens(lines, agent, pack, model)
    if tokens > most:
        raise TooLarge(
            f"the session would have {len(lines)} lines that begin with {CRITICAL}, {tokens} tokens; the limit is {most}"
            f" of the {budget} tokens of a request",
            hint=LABELLED_HINT,
        )


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
