"""The outside world of the whole-mesh simulation: it does what it is asked, counts it, and goes wrong by a seed.

A request is on its way for a time, whatever becomes of the process that sent it; so it may arrive after its sender's death, but
never later than the tools' settle time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from anchorwatch.core.names import SessionRef
from anchorwatch.packs.port import Artifact, OutcomeUnknown, Reconciled, ToolContext, ToolFailed, ToolResult
from anchorwatch.testing.process import current

SETTLE_S = 1.0
TIMEOUT_S = 4.0
LARGE = 20_000
Trouble = Literal["refuse", "lost_request", "late_request", "lost_answer", "hang", "odd", "slow"]
TROUBLES: tuple[Trouble, ...] = (
    "refuse",
    "lost_request",
    "late_request",
    "lost_answer",
    "hang",
    "odd",
    "slow",
)
KEY_HONOURED = frozenset({"set", "make"})
"""The tools whose provider does a key once, however often it is asked."""
Ending = Literal["returned", "failed", "raised"]


async def running() -> None:
    """Return when the process that this runs in is not stopped."""
    life = current()
    if life is not None:
        await life.running()


def is_zombie() -> bool:
    """Whether the process that this runs in was replaced, and goes on: for that case, who writes into a book reads it before."""
    life = current()
    return life is not None and life.process.life is not life


@dataclass(slots=True)
class Note:
    """What the world knows of an effect key."""

    ref: SessionRef
    tool: str
    begun: int = 0
    ended: list[Ending] = field(default_factory=list)
    done: int = 0


class Provider:
    """``troubles``: how likely each is, for a call. ``alarms`` counts what went wrong in the world by itself."""

    def __init__(
        self, chance: random.Random, troubles: Mapping[Trouble, float], now_ms: Callable[[], int]
    ) -> None:
        self.notes: dict[str, Note] = {}
        self.troubles = dict(troubles)
        self.struck: dict[str, int] = {}
        self.alarms = 0
        self.ready = True
        self.now_ms = now_ms
        self._chance = chance

    def calm(self) -> None:
        """Nothing goes wrong any more."""
        self.troubles.clear()

    async def run(self, tool: str, args: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Do it; raises as `PackRuntime.run` may."""
        await running()
        note = self.notes.setdefault(context.effect_key, Note(context.ref, tool))
        note.begun += 1
        try:
            result = await self._ask(tool, args, context.effect_key)
        except ToolFailed:
            note.ended.append("failed")
            raise
        except Exception:
            note.ended.append("raised")
            raise
        await running()
        note.ended.append("returned")
        return result

    async def reconcile(self, key: str) -> Reconciled:
        """What became of the key, as far as the world will say."""
        await running()
        trouble = self._trouble()
        await asyncio.sleep(0.01)
        if trouble in ("lost_answer", "hang"):
            raise OutcomeUnknown("the question was lost")
        if trouble == "odd":
            return Reconciled("unknown")
        note = self.notes.get(key)
        if note is not None and note.done:
            return Reconciled("done", ToolResult("it was done"))
        return Reconciled("not_done", rejects_used_key=note is not None and note.tool in KEY_HONOURED)

    async def _ask(self, tool: str, args: Mapping[str, Any], key: str) -> ToolResult:
        trouble = self._trouble()
        if trouble == "refuse" and not self.notes[key].done:
            raise ToolFailed("the world does not want it")
        if trouble == "lost_request":
            await asyncio.sleep(0.1)
            raise OutcomeUnknown("the request was lost")
        way_s = self._chance.choice((0.001, 0.02, 0.2, SETTLE_S * 0.9 if trouble == "late_request" else 0.05))
        arrived = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(way_s, self._arrive, key, arrived)
        if trouble == "late_request":
            raise OutcomeUnknown("the connection broke while the request was on its way")
        await arrived
        if trouble == "lost_answer":
            raise OutcomeUnknown("the answer was lost")
        if trouble == "hang":
            await asyncio.sleep(2 * TIMEOUT_S)
        if trouble == "odd":
            raise ZeroDivisionError("odd")
        if trouble == "slow":
            await asyncio.sleep(self._chance.uniform(0.1, TIMEOUT_S - 0.5))
        return self._answer(tool, args)

    def _arrive(self, key: str, arrived: asyncio.Future[None]) -> None:
        note = self.notes[key]
        if note.tool not in KEY_HONOURED or not note.done:
            note.done += 1
        if not arrived.done():
            arrived.set_result(None)

    def _answer(self, tool: str, args: Mapping[str, Any]) -> ToolResult:
        item = str(args.get("item", ""))
        match args.get("answer"):
            case "large":
                return ToolResult("x" * LARGE, {"item": item})
            case "file":
                return ToolResult("kept", {}, (Artifact(f"{item}.md", "text/markdown", b"# done\n"),))
            case "notify":
                return ToolResult("told", {"notify": {"title": item, "text": "look", "severity": "warning"}})
            case _:
                return ToolResult(f"{tool} {item}", {"item": item})

    def _trouble(self) -> Trouble | None:
        for name, rate in self.troubles.items():
            if self._chance.random() < rate:
                self.struck[f"tool {name}"] = self.struck.get(f"tool {name}", 0) + 1
                return name
        return None
