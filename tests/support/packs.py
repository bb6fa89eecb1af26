"""`bench`: a small real pack for tests. Its outside world is a directory: a file of effects and a file of facts.

Every effect is a line of ``effects.jsonl``, appended under a lock, so that it can be counted outside the journal and
from any process. A sink that honours effect keys refuses to do a key twice; one that does not, does.

The argument ``mode`` of a call, one of `MODES`, decides its behaviour.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.emergency import Emergency, Sighting
from anchorwatch.core.errors import BadInput, NotFound
from anchorwatch.core.facts import UNKNOWN, Facts, Observation
from anchorwatch.core.tools import EffectClass, Invariant, Risk, ToolSpec
from anchorwatch.models.port import Situation, StepDecision
from anchorwatch.packs.port import (
    Artifact,
    OutcomeUnknown,
    Pack,
    PackEnvironment,
    PackRuntime,
    Probed,
    Reconciled,
    ToolContext,
    ToolFailed,
    ToolResult,
)

MODES = {
    "ok": "do it",
    "refuse": "certainly do not do it",
    "lost": "do it, and lose the answer",
    "lost_before": "lose the request on its way",
    "lost_once": "lose the answer the first time that it is done",
    "hang": "do it, and never answer",
    "hang_once": "do it, and never answer the first time that it is done",
    "crash": "do it, and fail in an odd way",
    "large": "do it, and answer with more than a record should hold",
    "artifact": "do it, and hand over a file",
    "notify": "do it, and tell people",
    "odd": "do it, and answer with invalid JSON",
}
SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {
        "item": {"type": "string"},
        "mode": {"enum": sorted(MODES)},
        "count": {"type": "integer", "minimum": 1},
    },
    "required": ["item"],
    "additionalProperties": False,
}


def _tool(name: str, effect_class: EffectClass, **more: Any) -> ToolSpec:
    options: dict[str, Any] = {"timeout_s": 1.0, "settle_s": 0.3, "risk": Risk.LOW, **more}
    return ToolSpec(name, f"bench tool {name}", SCHEMA, effect_class, **options)


TOOLS = (
    _tool("look", EffectClass.READ),
    _tool("set", EffectClass.IDEMPOTENT),
    _tool("build", EffectClass.RECONCILABLE),
    _tool("fire", EffectClass.IRREVERSIBLE),
    _tool("guarded", EffectClass.IRREVERSIBLE),
    _tool("plod", EffectClass.IRREVERSIBLE, timeout_s=60.0),
)
PLOD_S = 6.0
"""Longer than several ack waits, and than the leases of tests that shorten them."""
INVARIANTS = (
    Invariant(
        "only-when-ready", ("guarded",), "observation.ready", needs=("ready",), message="it must be ready"
    ),
)
_ODD: Any = {"when": Path("x"), "big": 2**80, "set": {1}, 3: float("inf")}
ANSWERS = {
    "large": ToolResult("x" * 20_000, {"size": 20_000}),
    "artifact": ToolResult("kept", artifacts=(Artifact("report.md", "text/markdown", b"# done\n"),)),
    "notify": ToolResult("told", {"notify": {"title": "look", "text": "here", "severity": "warning"}}),
    "odd": ToolResult("odd", _ODD),
}


class Sink:
    """The outside world: a directory. A line that a killed process wrote in part is not an effect."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "effects.jsonl"
        self._world = directory / "world.json"
        directory.mkdir(parents=True, exist_ok=True)

    def do(self, tool: str, item: str, key: str, *, honour: bool) -> bool:
        """Record the effect; False if the sink honours keys and has this key already."""
        with self._file.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if honour and any(effect["key"] == key for effect in self.effects()):
                return False
            # The leading newline separates it from a partial line.
            file.write("\n" + json.dumps({"tool": tool, "item": item, "key": key}) + "\n")
        return True

    def effects(self, item: str | None = None) -> list[dict[str, str]]:
        """All effects, in order."""
        if not self._file.exists():
            return []
        done: list[dict[str, str]] = []
        for line in self._file.read_text().splitlines():
            with contextlib.suppress(ValueError):
                done.append(json.loads(line))
        return [effect for effect in done if item is None or effect["item"] == item]

    def set_world(self, **facts: object) -> None:
        """Set the facts from now on."""
        beside = self._world.with_suffix(".new")
        beside.write_text(json.dumps(facts))
        beside.rename(self._world)

    def world(self) -> dict[str, Any]:
        if not self._world.exists():
            return {}
        content: dict[str, Any] = json.loads(self._world.read_text())
        return content


@dataclass
class BenchRuntime:
    """``honour``: the sink honours effect keys. ``answers``: its answer to a reconcile (None: the truth)."""

    sink: Sink
    honour: bool
    answers: str | None = None

    async def observe(self) -> Observation:
        world = self.sink.world()
        if delay := world.get("slow_s"):
            await asyncio.sleep(delay)
        facts: Facts = {"ready": world.get("ready"), "dead": world.get("dead")}
        text = json.dumps(facts)
        digest = sha256(text.encode()).hexdigest()
        return Observation(text, facts, at_ms=world.get("at_ms", 1), digest=digest, data=world)

    def changes(self, before: Observation | None, now: Observation) -> Sequence[Probed]:
        old = before.facts.get("dead") if before else None
        new = now.facts.get("dead")
        if new is None or new == old:
            return ()
        return (Probed(f"dead-{new}", "bench", "thing.dead", "P0", {"name": new}),)

    async def run(self, tool: str, args: Mapping[str, Any], context: ToolContext) -> ToolResult:
        mode, item = args.get("mode", "ok"), args["item"]
        if mode == "refuse":
            raise ToolFailed("the bench refuses")
        if mode == "lost_before":
            raise OutcomeUnknown("the request was lost")
        fresh = True
        if tool == "plod":
            await asyncio.sleep(PLOD_S)
        if tool != "look":
            fresh = self.sink.do(tool, item, context.effect_key, honour=self.honour)
        if mode == "lost" or (mode == "lost_once" and fresh):
            raise OutcomeUnknown("the answer was lost")
        if mode == "hang" or (mode == "hang_once" and fresh):
            await asyncio.Event().wait()
        if mode == "crash":
            raise ZeroDivisionError("odd")
        return ANSWERS.get(mode) or ToolResult(f"{tool} {item}", {"item": item})

    async def reconcile(self, tool: str, args: Mapping[str, Any], context: ToolContext) -> Reconciled:
        del tool, args
        if self.answers == "unknown":
            return Reconciled("unknown")
        if any(effect["key"] == context.effect_key for effect in self.sink.effects()):
            return Reconciled("done", ToolResult("reconciled", {"found": True}))
        return Reconciled("not_done", rejects_used_key=self.honour)

    async def close(self) -> None:
        pass


class BenchPack:
    """``config``: ``directory`` (the outside world), ``honour``, ``answers``."""

    name = "bench"
    version = "1"

    def tools(self, agent: AgentSpec) -> Sequence[ToolSpec]:
        del agent
        return TOOLS

    def invariants(self, agent: AgentSpec) -> Sequence[Invariant]:
        del agent
        return INVARIANTS

    def prompt(self, agent: AgentSpec) -> tuple[str, str]:
        return f"You are {agent.name}.", "Be careful."

    def resource(self, tool: str, args: Mapping[str, Any]) -> str:
        return f"{tool}/{args.get('item', '')}"

    def reduce(self, facts: Facts, observation: Observation) -> dict[str, Any]:
        return {**facts, **observation.facts}

    def emergency(self, facts: Facts) -> Sighting:
        dead = facts.get("dead")
        if dead is UNKNOWN:
            return UNKNOWN
        return Emergency(f"{dead}-dead", f"{dead} is dead") if dead else False

    def rules(self, situation: Situation) -> StepDecision:
        return StepDecision(f"run {situation.run_id} looked")

    def check(self, agent: AgentSpec) -> None:
        if "directory" not in agent.config:
            raise BadInput("the bench needs a directory", hint="set config.directory")

    async def connect(self, environment: PackEnvironment) -> PackRuntime:
        config = environment.agent.config
        return BenchRuntime(
            Sink(Path(config["directory"])), config.get("honour", True), config.get("answers")
        )


BENCH = BenchPack()


def load(name: str) -> Pack:
    """As `packs.registry.load`: it knows only `bench`."""
    if name != BENCH.name:
        raise NotFound(f"unknown pack {name!r}", hint=f"installed: {BENCH.name}")
    return BENCH


def bench_agent(directory: Path, **changes: Any) -> AgentSpec:
    """An agent of the bench with every grant."""
    config = {"directory": str(directory), **changes.pop("config", {})}
    fields: dict[str, Any] = {
        "name": "keeper",
        "pack": "bench",
        "grants": tuple(tool.name for tool in TOOLS),
        "subscriptions": ("bench.>",),
        "config": config,
        "version": 1,
        **changes,
    }
    return AgentSpec(**fields)
