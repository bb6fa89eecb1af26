"""Runs the tool of a claimed command: once, or as often as its effect class makes safe."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from anchorwatch.core.effect.decide import after_reconcile
from anchorwatch.core.tools import EffectClass
from anchorwatch.edges import Edge, reached
from anchorwatch.execution.job import Equipment, Job
from anchorwatch.packs.port import NeverDone, OutcomeUnknown, Reconciled, ToolContext, ToolFailed, ToolResult
from anchorwatch.service.context import Clock

RUNS_MAX = 6
RECONCILE_TRIES_MAX = 3
PAUSE_S = 0.25
"""The first pause between two runs; each is twice the one before. A provider that was killed is back within them."""
ERROR_CHARS_MAX = 500


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of it. ``error`` is a stable code, ``text`` a sentence for the model; ``result`` stands with `succeeded`."""

    state: Literal["succeeded", "failed", "unknown"]
    text: str = ""
    error: str = ""
    result: ToolResult | None = None


@dataclass(frozen=True, slots=True)
class NotDone:
    """The provider says that it was not done. ``certain``: nothing of it can be on its way any more."""

    certain: bool


class Attempts:
    """The runs of one command under one claim.

    ``may_go_on`` is asked before the tool is started again: the session may have been fenced or paused meanwhile.
    """

    def __init__(
        self,
        job: Job,
        equipment: Equipment,
        context: ToolContext,
        clock: Clock,
        may_go_on: Callable[[], Awaitable[bool]],
    ) -> None:
        self._job = job
        self._equipment = equipment
        self._context = context
        self._clock = clock
        self._may_go_on = may_go_on

    async def run(self, *, doubt: bool = False, stopped: bool = False) -> Ran:
        """Run it, again where that is safe and the outcome is not known.

        ``doubt``: an earlier attempt may have done it already; that this one did not says nothing of that. ``stopped``: who
        made it may only be stopped, and do it yet.
        """
        tool = self._equipment.tool
        for number in range(RUNS_MAX):
            left = RUNS_MAX - number - 1
            ran = await self._once(doubt=doubt)
            doubt = True
            if ran.state != "unknown" or tool.effect_class is EffectClass.IRREVERSIBLE:
                return ran
            if tool.effect_class is EffectClass.RECONCILABLE:
                found = await self.find(doubt=stopped)
                if isinstance(found, Ran):
                    return found
                if not left or not await self._may_go_on():
                    return _not_done(found)
                doubt = not found.certain
            elif not left or not await self._may_go_on():
                break
            await self._clock.sleep(PAUSE_S * 2.0**number)
        return ran

    async def take_up(self, *, doubt: bool) -> Ran:
        """Go on from another's claim: ask the provider, and run only what was certainly not done.

        ``doubt``: its owner may only be stopped, and do it yet.
        """
        found = await self.find(doubt=doubt)
        if isinstance(found, Ran):
            return found
        if not await self._may_go_on():
            return _not_done(found)
        return await self.run(doubt=not found.certain, stopped=doubt)

    async def find(self, *, doubt: bool = False) -> Ran | NotDone:
        """What became of the effect key, by the provider's word; waits until what was sent has had its time to arrive.

        That time begins here, where nothing more is sent: how long ago the last of it was, only other clocks could say.
        """
        settled_at_s, tries = self._clock.elapsed_s() + self._equipment.tool.settle_s, 0
        while True:
            # Before the question: what was on its way while the provider answered may arrive behind the answer.
            settled = self._clock.elapsed_s() >= settled_at_s
            said = await self._ask()
            tries += said.state == "unknown"
            next_ = after_reconcile(
                said.state, rejects_used_key=said.rejects_used_key, settled=settled, doubt=doubt
            )
            match next_:
                case "record":
                    done = said.result or ToolResult("it was done, as the provider says")
                    return Ran("succeeded", result=done)
                case "run":
                    return NotDone(certain=settled and not doubt)
                case "wait":
                    await self._clock.sleep(max(0.0, settled_at_s - self._clock.elapsed_s()))
                case "unknown" if said.state == "not_done":
                    text = (
                        "it was not done so far, but who claimed it first may only be stopped, and do it yet"
                    )
                    return Ran("unknown", text, OutcomeUnknown.code)
                case "unknown" if tries >= RECONCILE_TRIES_MAX:
                    return Ran("unknown", "the provider cannot say whether it was done", OutcomeUnknown.code)
                case _:
                    await self._clock.sleep(PAUSE_S)

    async def _ask(self) -> Reconciled:
        command = self._job.command
        try:
            async with asyncio.timeout(self._equipment.tool.timeout_s):
                reached(Edge.EXECUTOR_RECONCILE_BEFORE)
                said = await self._equipment.runtime.reconcile(command.tool, command.args, self._context)
                reached(Edge.EXECUTOR_RECONCILE_AFTER)
                return said
        except Exception:  # noqa: BLE001 - whatever a pack raises here, it did not say what became of the effect
            return Reconciled("unknown")

    async def _once(self, *, doubt: bool) -> Ran:
        command, tool = self._job.command, self._equipment.tool
        try:
            async with asyncio.timeout(tool.timeout_s):
                reached(Edge.EXECUTOR_EFFECT_BEFORE)
                result = await self._equipment.runtime.run(command.tool, command.args, self._context)
                reached(Edge.EXECUTOR_EFFECT_AFTER)
                return Ran("succeeded", result=result)
        except ToolFailed as error:
            if not doubt or isinstance(error, NeverDone):
                return Ran("failed", str(error)[:ERROR_CHARS_MAX], error.code)
            text, code = f"an earlier attempt may have done it; a later one did not: {error}", error.code
        except OutcomeUnknown as error:
            text, code = str(error), error.code
        except TimeoutError:
            text, code = f"{command.tool} gave no answer within {tool.timeout_s:g} s", "timeout"
        except Exception as error:  # noqa: BLE001 - a pack may raise anything, and the request may have left
            text, code = f"{type(error).__name__}: {error}", "tool_error"
        state: Literal["failed", "unknown"] = "unknown" if tool.mutating else "failed"
        return Ran(state, text[:ERROR_CHARS_MAX], code)


def _not_done(found: NotDone) -> Ran:
    if found.certain:
        return Ran("failed", "it was not done, and the run that wanted it is over", "not_done")
    return Ran(
        "unknown", "it was not done so far, but a request may still be on its way", OutcomeUnknown.code
    )
