"""Whether what was seen is still fit to act on: a slow model answers to a world that may have gone on. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from anchorwatch.core.facts import Observation
from anchorwatch.core.session.commands import PlannedCall
from anchorwatch.core.tools import ToolSpec

LOOKS_MAX = 3
"""So often a step is decided at most before it is committed on what was seen last; the executor has its own word on that."""


def too_old(
    calls: Iterable[PlannedCall], tools: Sequence[ToolSpec], observation: Observation, now_ms: int
) -> bool:
    """Whether one of the calls must not cite this observation any more: it changes something, and its tool wants a newer one."""
    limits = {tool.name: tool.observation_age_max_s for tool in tools if tool.mutating}
    age_s = (now_ms - observation.at_ms) / 1000
    return any(call.mutating and age_s > limits.get(call.tool, age_s) for call in calls)


def shows_the_same(before: Observation, now: Observation) -> bool:
    """Whether a decision that was made on ``before`` is one on ``now``. What could not be seen is the same as nothing."""
    return bool(now.digest) and now.digest == before.digest


def together(usages: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What several calls used, as one."""
    total: Counter[str] = Counter()
    for usage in usages:
        total.update({name: value for name, value in usage.items() if isinstance(value, int)})
    return dict(total)
