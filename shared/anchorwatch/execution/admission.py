"""May this command run? Asked before the first claim; the model's word is never enough."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence

from anchorwatch import cel
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.effect import EffectState
from anchorwatch.core.errors import Unavailable
from anchorwatch.core.facts import Observation
from anchorwatch.core.policy import Question, Verdict, judge, needs_observation
from anchorwatch.core.session.events import CommandDecided
from anchorwatch.core.tools import Invariant, ToolSpec
from anchorwatch.execution.schema import problem
from anchorwatch.service.context import Clock

OBSERVE_ATTEMPT_S = 3.5
"""A little more than the observer gives a pack."""
OBSERVE_S_MAX = 5.0
OBSERVE_PAUSE_S = 0.2


def admissible(
    command: CommandDecided, tool: ToolSpec | None, grants: Sequence[str], now_ms: int
) -> Verdict | None:
    """The refusal of a command that need not be looked at any further; None when its invariants decide."""
    name = command.tool
    if tool is None:
        return Verdict("refused", "unknown_tool", f"there is no tool {name!r} in pool {command.pool!r}")
    if name not in grants:
        return Verdict("refused", "grant", f"the agent has no grant for {name}")
    if wrong := problem(command.args, tool.parameters):
        return Verdict("refused", "schema", wrong)
    return _observed_lately(command, tool, now_ms)


def _observed_lately(command: CommandDecided, tool: ToolSpec, now_ms: int) -> Verdict | None:
    if not tool.mutating or math.isinf(tool.observation_age_max_s):
        return None
    if not command.observation_digest:
        return Verdict(
            "refused", "observation_age", "it was decided without an observation; look again first"
        )
    age_s = (now_ms - command.observation_at_ms) / 1000
    if age_s > tool.observation_age_max_s:
        text = f"the observation is {age_s:.0f} s old, {command.tool} allows {tool.observation_age_max_s:g} s; look again first"
        return Verdict("refused", "observation_age", text)
    return None


async def admit(
    command: CommandDecided,
    tool: ToolSpec | None,
    grants: Sequence[str],
    invariants: Sequence[Invariant],
    *,
    anchor: Callable[[], Awaitable[Anchor]],
    look: Callable[[], Awaitable[Observation | None]],
    now_ms: int,
) -> Verdict:
    """The verdict. ``anchor`` and ``look`` are asked only when an invariant needs them."""
    refusal = admissible(command, tool, grants, now_ms)
    if refusal is not None:
        return refusal
    facts, observation = {}, None
    if needs_observation(command.tool, invariants):
        facts, observation = (await anchor()).facts, await look()
    question = Question(command.tool, command.args, command.resource, grants, facts, observation)
    return judge(question, invariants, cel.evaluate)


async def look_again(ask: Callable[[float], Awaitable[Observation]], clock: Clock) -> Observation | None:
    """A fresh observation, asked for again while the observer is away; None when it stays away for `OBSERVE_S_MAX`."""
    deadline_s = clock.elapsed_s() + OBSERVE_S_MAX
    while True:
        try:
            return await ask(OBSERVE_ATTEMPT_S)
        except Unavailable:
            if clock.elapsed_s() + OBSERVE_PAUSE_S >= deadline_s:
                return None
            await clock.sleep(OBSERVE_PAUSE_S)


def allows(verdict: Verdict, state: EffectState) -> bool:
    """Whether it may be begun: the policy allows it, or a person whom it asks has approved."""
    approved = state.approval is not None and state.approval.approved
    return verdict.decision == "allowed" or (verdict.decision == "gate" and approved)
