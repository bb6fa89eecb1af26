"""The bench as a scripted pack: a person's message names the calls, step by step.

A message is JSON: a list of steps, each a list of ``[tool, item, mode]``. Each message in a turn adds its calls.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anchorwatch.core.facts import Observation
from anchorwatch.models.port import ProposedCall, Situation, StepDecision
from anchorwatch.packs import registry
from anchorwatch.packs.port import PackEnvironment, Probed

from tests.support.packs import BenchPack, BenchRuntime, Sink

Step = Sequence[tuple[str, str, str]]
SOURCE = "scripted"


@dataclass
class ScriptedRuntime(BenchRuntime):
    """``agent``: the name in the subjects of its events, so that they reach only its sessions."""

    agent: str = ""

    async def observe(self) -> Observation:
        return replace(await super().observe(), at_ms=time.time_ns() // 1_000_000)

    def changes(self, before: Observation | None, now: Observation) -> Sequence[Probed]:
        return tuple(
            replace(each, source=SOURCE, type=f"{self.agent}.dead", event_id=f"{self.agent}-{each.event_id}")
            for each in super().changes(before, now)
        )

    async def times_done(self, tool: str, effect_key: str) -> int:
        del tool
        return sum(effect["key"] == effect_key for effect in self.sink.effects())


class ScriptedPack(BenchPack):
    """``scripted``. ``runtime``: the class to connect; ``honour``: whether its provider honours effect keys."""

    name = "scripted"
    runtime: type[ScriptedRuntime] = ScriptedRuntime
    honour = True

    def rules(self, situation: Situation) -> StepDecision:
        done = len(situation.steps)
        steps = [step for wake in situation.wakes for step in _steps(wake)[done : done + 1]]
        calls = [
            ProposedCall(tool, {"item": item, "mode": mode}) for step in steps for tool, item, mode in step
        ]
        return StepDecision("as the message says" if calls else "done", tuple(calls))

    async def connect(self, environment: PackEnvironment) -> ScriptedRuntime:
        agent = environment.agent
        return self.runtime(Sink(Path(agent.config["directory"])), honour=self.honour, agent=agent.name)


def _steps(wake: Mapping[str, Any]) -> list[Step]:
    if wake["kind"] != "message":
        return []
    try:
        steps: list[Step] = json.loads(wake["text"])
    except ValueError:
        return []
    return steps


def order(*steps: Step) -> str:
    """The message with these steps."""
    return json.dumps(steps)


class ForgetfulPack(ScriptedPack):
    """``forgetful``: its provider ignores effect keys and repeats each call."""

    name = "forgetful"
    honour = False


SCRIPTED, FORGETFUL = ScriptedPack(), ForgetfulPack()
registry.register(SCRIPTED)
registry.register(FORGETFUL)
