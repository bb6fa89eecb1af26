"""The live half of the pack: observes the fleet and runs its tools."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from anchorwatch.packs import (
    Artifact,
    Bus,
    NeverDone,
    Observation,
    OutcomeUnknown,
    Probed,
    Reconciled,
    ToolContext,
    ToolFailed,
    ToolResult,
    Unavailable,
    schedule_next_check,
)

from anchorwatch_fleet.changes import changes
from anchorwatch_fleet.client import YardClient, YardRefused
from anchorwatch_fleet.config import FleetConfig
from anchorwatch_fleet.observe import make_observation
from anchorwatch_fleet.sources import look
from anchorwatch_fleet.subjects import PROVIDER_ERROR

ASK_S_MAX = 10.0
ASK_S_MIN = 0.1
DEADLINE_SHARE = 0.8
"""The yard's share of a command's time; the rest is for recording the outcome."""


class FleetRuntime:
    """One fleet with one yard and one queue. Times come from the bus, so the whole mesh agrees on them."""

    def __init__(self, bus: Bus, config: FleetConfig) -> None:
        self._bus = bus
        self._yard = YardClient(bus)
        self._config = config

    async def observe(self) -> Observation:
        sources, at_ms = await asyncio.gather(look(self._bus), self._now_ms())
        return make_observation(sources, self._config.fleet_limit, at_ms)

    async def _now_ms(self) -> int:
        try:
            return await self._bus.server_time_ms()
        except Unavailable:
            # An observation without known facts still has a time.
            return time.time_ns() // 1_000_000

    def changes(self, before: Observation | None, now: Observation) -> Sequence[Probed]:
        return changes(before, now, self._config.backlog_s_max)

    async def run(self, tool: str, args: Mapping[str, Any], context: ToolContext) -> ToolResult:
        try:
            match tool:
                case "launch_instances":
                    return await self._launch(args, context)
                case "stop_instance":
                    return await self._stop(args["instance_id"], context)
                case "restart_instance":
                    return await self._restart(args["instance_id"], context)
                case "instance_logs":
                    return await self._logs(args, context)
                case "notify_human":
                    return notify_human(args)
                case "schedule_next_check":
                    return schedule_next_check(args, context)
                case "save_report":
                    return save_report(args)
                case _:
                    raise NeverDone(f"unknown tool {tool!r}")
        except KeyError as error:
            raise NeverDone(f"{tool}: the argument {error} is missing") from None

    async def reconcile(self, tool: str, args: Mapping[str, Any], context: ToolContext) -> Reconciled:
        """Ask the yard about the effect key. It does not reject a used key, so "not done" alone does not allow a second run."""
        try:
            answer = await self._yard.ask("effect", _ask_s(context), effect_key=context.effect_key)
        except (Unavailable, YardRefused):
            return Reconciled("unknown")
        match answer.get("state"):
            case "done":
                instances = answer.get("result", {}).get("instances", [])
                text = f"{tool} was done ({', '.join(instances)}), by the yard's records"
                return Reconciled("done", ToolResult(text, {"instances": instances, **args}))
            case "not_done":
                return Reconciled("not_done")
            case _:
                return Reconciled("unknown")

    async def times_done(self, tool: str, effect_key: str) -> int | None:
        """By the yard's records; for a launch, by the records of its workers."""
        match tool:
            case "launch_instances":
                answer = await self._yard.ask("count")
                return max(
                    (int(count) for count in answer["launches"].get(effect_key, {}).values()), default=0
                )
            case "stop_instance" | "restart_instance":
                answer = await self._yard.ask("effect", effect_key=effect_key)
                return int(answer["state"] == "done")
            case _:
                return None

    async def close(self) -> None:
        """Do nothing: the caller owns the bus."""

    # ------------------------------------------------------------ requests to the yard

    async def _launch(self, args: Mapping[str, Any], context: ToolContext) -> ToolResult:
        answer = await self._change(
            "launch",
            context,
            count=args["count"],
            priority=args["launch_priority"],
            limit=self._config.fleet_limit,
        )
        instances = answer["instances"]
        again = " (by an earlier attempt of this command)" if answer.get("replayed") else ""
        text = f"Launched {len(instances)}{again}: {', '.join(instances)}; they load for a few seconds before they work"
        return ToolResult(text, {"instances": instances})

    async def _stop(self, instance_id: str, context: ToolContext) -> ToolResult:
        answer = await self._change("stop", context, id=instance_id)
        text = (
            f"Stopped {instance_id}"
            if answer["was_live"]
            else f"{instance_id} had already ended: {answer['state']}"
        )
        return ToolResult(text, {"instances": [instance_id], "was_live": answer["was_live"]})

    async def _restart(self, instance_id: str, context: ToolContext) -> ToolResult:
        answer = await self._change("restart", context, id=instance_id)
        return ToolResult(
            f"Restarted {instance_id}; it loads for a few seconds", {"instances": answer["instances"]}
        )

    async def _change(self, verb: str, context: ToolContext, **args: object) -> dict[str, Any]:
        """Ask the yard to change something, under the command's effect key.

        Raises:
            NeverDone: the yard never did it under this key. ToolFailed: the yard was unreachable before the request, or failed.
            OutcomeUnknown: no answer to the request.
        """
        try:
            await self._yard.ask("ping", min(_ask_s(context), ASK_S_MAX / 4))
        except Unavailable as error:
            raise ToolFailed(f"the yard is unreachable, and nothing was requested: {error}") from None
        except YardRefused as error:
            raise ToolFailed(f"the yard accepts no requests: {error}") from None
        try:
            return await self._yard.ask(verb, _ask_s(context), effect_key=context.effect_key, **args)
        except YardRefused as error:
            # It checks the key first; only a fault of its provider comes earlier.
            kind = ToolFailed if error.yard_code == PROVIDER_ERROR else NeverDone
            raise kind(f"the yard refused: {error}") from None
        except Unavailable as error:
            raise OutcomeUnknown(f"the yard did not answer the request to {verb}: {error}") from None

    async def _logs(self, args: Mapping[str, Any], context: ToolContext) -> ToolResult:
        try:
            answer = await self._yard.ask(
                "logs", _ask_s(context), id=args["instance_id"], lines=args["lines"]
            )
        except (Unavailable, YardRefused) as error:
            raise ToolFailed(f"cannot read the log: {error}") from None
        lines = [str(line) for line in answer["lines"]]
        return ToolResult("\n".join(lines) or "the log is empty", {"lines": len(lines)})


def notify_human(args: Mapping[str, Any]) -> ToolResult:
    """The record is the effect: the notifier reads it and notifies people once."""
    notify = {"title": args["title"], "text": args["text"], "severity": args["severity"]}
    return ToolResult(f"People will be notified: {args['title']}", {"notify": notify})


def save_report(args: Mapping[str, Any]) -> ToolResult:
    """Return the report as an artifact."""
    data = str(args["text"]).encode()
    report = Artifact(str(args["name"]), "text/markdown", data)
    return ToolResult(f"Report {report.name} saved ({len(data)} bytes)", {"name": report.name}, (report,))


def _ask_s(context: ToolContext) -> float:
    """Seconds that the yard may take."""
    return max(ASK_S_MIN, min(ASK_S_MAX, context.deadline_s * DEADLINE_SHARE))
