"""Whether the policy admits a command, before its first claim. The model's word is never enough."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence

from anchorwatch import cel
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.errors import Unavailable
from anchorwatch.core.facts import Observation
from anchorwatch.core.policy import Question, Verdict, judge, needs_observation
from anchorwatch.core.session.events import CommandDecided
from anchorwatch.core.tools import Invariant, ToolSpec
from anchorwatch.executor.schema import schema_problems
from anchorwatch.service.context import Clock

OBSERVE_ATTEMPT_S = 3.5
"""A little more than the observer gives a pack."""
OBSERVE_S_MAX = 5.0
OBSERVE_PAUSE_S = 0.2


async def admit(
    command: CommandDecided,
    tool: ToolSpec,
    grants: Sequence[str],
    invariants: Sequence[Invariant],
    *,
    anchor: Callable[[], Awaitable[tuple[Anchor, int]]],
    observation: Callable[[], Awaitable[Observation | None]],
    now_ms: int,
) -> Verdict:
    """The verdict. ``anchor`` and ``observation`` are called only when an invariant needs them."""
    refusal = refused_by_rule(command, tool, grants, now_ms)
    if refusal is not None:
        return refusal
    facts, seen = {}, None
    if needs_observation(command.tool, invariants):
        facts, seen = (await anchor())[0].facts, await observation()
    question = Question(command.tool, command.args, command.resource, grants, facts, seen)
    return judge(question, invariants, cel.evaluate)


def refused_by_rule(
    command: CommandDecided, tool: ToolSpec, grants: Sequence[str], now_ms: int
) -> Verdict | None:
    """The refusal of a command that breaks a fixed rule; None when its invariants decide."""
    name = command.tool
    if name not in grants:
        return Verdict("refused", "grant", f"the agent has no grant for {name}")
    if wrong := schema_problems(command.args, tool.parameters):
        return Verdict("refused", "schema", wrong)
    return _refused_by_age(command, tool, now_ms)


def _refused_by_age(command: CommandDecided, tool: ToolSpec, now_ms: int) -> Verdict | None:
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


async def observe(ask: Callable[[float], Awaitable[Observation]], clock: Clock) -> Observation | None:
    """A fresh observation. Asks again while the observer is not available; None after `OBSERVE_S_MAX`."""
    deadline_s = clock.elapsed_s() + OBSERVE_S_MAX
    while True:
        try:
            return await ask(OBSERVE_ATTEMPT_S)
        except Unavailable:
            if clock.elapsed_s() + OBSERVE_PAUSE_S >= deadline_s:
                return None
            await clock.sleep(OBSERVE_PAUSE_S)
