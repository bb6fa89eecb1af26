"""A model with the pack's rules for a mind, which is slow, fails, or answers garbage, by a seed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from anchorwatch.core.agents import AgentSpec
from anchorwatch.models.port import (
    ContextOverflow,
    Model,
    ModelRefused,
    ModelReply,
    ModelRequest,
    ModelUnavailable,
    OnRetry,
    ProposedCall,
    StepDecision,
    ignore,
)
from anchorwatch.models.rules import RulesModel
from anchorwatch.models.usage import Usage
from anchorwatch.packs.port import Pack
from anchorwatch.settings import Settings

from tests.sim.whole.provider import running

Trouble = Literal["slow", "unavailable", "refused", "overflow", "garbage", "cut", "odd"]
TROUBLES: tuple[Trouble, ...] = ("slow", "unavailable", "refused", "overflow", "garbage", "cut", "odd")
GARBAGE = (
    ProposedCall("set", None, raw="{item:", problem="the arguments are no JSON object"),
    ProposedCall("no_such_tool", {"item": "x"}),
    ProposedCall("fire", {"what": 1}),
)


class Models:
    """Makes the model of each agent; ``troubles``: how likely each is, for a request."""

    def __init__(self, chance: random.Random, troubles: Mapping[Trouble, float]) -> None:
        self.troubles = dict(troubles)
        self.struck: dict[str, int] = {}
        self._chance = chance

    def build(self, settings: Settings, agent: AgentSpec, pack: Pack) -> Model:
        del settings, agent
        return TroubledModel(pack, self)

    def calm(self) -> None:
        """Nothing goes wrong any more."""
        self.troubles.clear()

    def trouble(self) -> Trouble | None:
        for name, rate in self.troubles.items():
            if self._chance.random() < rate:
                self.struck[f"model {name}"] = self.struck.get(f"model {name}", 0) + 1
                return name
        return None

    def delay_s(self) -> float:
        return self._chance.uniform(0.1, 6.0)


class TroubledModel(RulesModel):
    """One agent's model: for the planner a language model like any other, which reports a tenth more than is counted."""

    name = "troubled"
    is_llm = True

    def __init__(self, pack: Pack, models: Models) -> None:
        super().__init__(pack.rules)
        self._models = models

    def count(self, request: ModelRequest) -> int:
        # The counting of tokens has tests of its own, and costs more than all else here.
        return 600 + sum(len(str(message.get("content"))) for message in request.messages) // 2

    async def complete(
        self, request: ModelRequest, deadline_s: float, on_retry: OnRetry = ignore
    ) -> ModelReply:
        reply = await super().complete(request, deadline_s, on_retry)
        usage = Usage(self.count(request) * 11 // 10, 20)
        reply = replace(reply, model=self.name, usage=usage)
        match self._models.trouble():
            case "slow":
                await asyncio.sleep(min(self._models.delay_s(), deadline_s))
            case "unavailable":
                raise ModelUnavailable("the model is away")
            case "refused":
                raise ModelRefused("the model does not want to")
            case "overflow":
                raise ContextOverflow("too long")
            case "garbage":
                reply = ModelReply(StepDecision("", GARBAGE), finish="tool_calls")
            case "cut":
                reply = ModelReply(StepDecision("I would"), Usage(10, 20), finish="length")
            case "odd":
                raise ZeroDivisionError("odd")
            case None:
                pass
        await running()
        return reply
