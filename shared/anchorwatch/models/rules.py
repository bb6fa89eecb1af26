"""The model without a language model: a pack's own deterministic decisions."""

from __future__ import annotations

from collections.abc import Callable

from anchorwatch.core.agents import RULES
from anchorwatch.models.port import ModelReply, ModelRequest, Situation, StepDecision
from anchorwatch.models.tokens import Counter


class RulesModel:
    """Asks the pack's rules. Nothing is sent anywhere, and the same situation gets the same decision."""

    name = RULES
    is_llm = False

    def __init__(self, pack_rules: Callable[[Situation], StepDecision]) -> None:
        self._rules = pack_rules
        self._counter = Counter()

    def count(self, request: ModelRequest) -> int:
        """Tokens (o200k) of the request as a model would be sent it: a session keeps its budget whoever decides."""
        return self._counter.sent(request)

    async def complete(self, request: ModelRequest, deadline_s: float) -> ModelReply:  # noqa: ARG002 - rules take no time
        """Decide. Raises nothing of its own: what a pack's rules raise is a fault of the pack, and passes through."""
        decision = self._rules(request.situation)
        return ModelReply(decision, model=RULES, finish="tool_calls" if decision.calls else "stop")

    async def close(self) -> None:
        """Nothing is held."""
