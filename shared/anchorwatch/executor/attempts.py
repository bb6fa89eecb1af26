"""Runs the tool of a claimed command: once, or as often as its effect class makes safe.

``doubt`` in this module: an earlier attempt may have had the effect, so that the failure of a later one proves nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from anchorwatch.core.effect.decide import after_reconcile
from anchorwatch.core.session.events import CommandDecided
from anchorwatch.core.tools import EffectClass
from anchorwatch.edges import Edge, around
from anchorwatch.executor.job import Equipment
from anchorwatch.packs.port import NeverDone, OutcomeUnknown, Reconciled, ToolContext, ToolFailed, ToolResult
from anchorwatch.service.context import Clock

RUNS_MAX = 6
RECONCILE_TRIES_MAX = 3
PAUSE_S = 0.25
"""The first pause between two runs; each is twice the one before. A provider that was killed restarts within them."""
ERROR_CHARS_MAX = 500


@dataclass(frozen=True, slots=True)
class Ran:
    """How it ended. ``error`` is a stable code, ``text`` a sentence for the model; ``result`` comes with `succeeded`."""

    state: Literal["succeeded", "failed", "unknown"]
    text: str = ""
    error: str = ""
    result: ToolResult | None = None


@dataclass(frozen=True, slots=True)
class NotDone:
    """The provider says that the effect was not done. ``certain``: no request can arrive there any more."""

    certain: bool


class Attempts:
    """The runs of one command under one claim.

    ``may_run_again`` is called before each further run: the session may have been fenced or paused meanwhile.
    """

    def __init__(
        self,
        command: CommandDecided,
        equipment: Equipment,
        context: ToolContext,
        clock: Clock,
        may_run_again: Callable[[], Awaitable[bool]],
    ) -> None:
        self._command = command
        self._equipment = equipment
        self._context = context
        self._clock = clock
        self._may_run_again = may_run_again

    async def run(self, *, doubt: bool = False, owner_alive: bool = False) -> Ran:
        """Run the tool, again where that is safe and the outcome is unknown.

        ``owner_alive``: the owner of an earlier attempt may only be stopped, and have the effect later.
        """
        tool = self._equipment.tool
        for number in range(RUNS_MAX):
            left = RUNS_MAX - number - 1
            ran = await self._once(doubt=doubt)
            doubt = True
            if ran.state != "unknown" or tool.effect_class is EffectClass.IRREVERSIBLE:
                return ran
            if tool.effect_class is EffectClass.RECONCILABLE:
                found = await self.reconcile(doubt=owner_alive)
                if isinstance(found, Ran):
                    return found
                if not left or not await self._may_run_again():
                    return _not_done(found)
                doubt = not found.certain
            elif not left or not await self._may_run_again():
                break
            await self._clock.sleep(PAUSE_S * 2.0**number)
        return ran

    async def resume(self, *, doubt: bool) -> Ran:
        """Continue from another owner's claim: reconcile, and run only what was certainly not done.

        ``doubt``: that owner may only be stopped, and have the effect later.
        """
        found = await self.reconcile(doubt=doubt)
        if isinstance(found, Ran):
            return found
        if not await self._may_run_again():
            return _not_done(found)
        return await self.run(doubt=not found.certain, owner_alive=doubt)

    async def reconcile(self, *, doubt: bool = False) -> Ran | NotDone:
        """Ask the provider about the effect key; wait until a request in flight has had time to arrive.

        The settle time begins here, where nothing more is sent: only other clocks know when the last request was sent.
        """
        settled_at_s, tries = self._clock.elapsed_s() + self._equipment.tool.settle_s, 0
        while True:
            # Read before the question: a request can arrive after the provider has looked, and before its answer is here.
            settled = self._clock.elapsed_s() >= settled_at_s
            answer = await self._ask()
            tries += answer.state == "unknown"
            next_ = after_reconcile(
                answer.state, rejects_used_key=answer.rejects_used_key, settled=settled, doubt=doubt
            )
            match next_:
                case "record":
                    done = answer.result or ToolResult("it was done, as the provider says")
                    return Ran("succeeded", result=done)
                case "run":
                    return NotDone(certain=settled and not doubt)
                case "wait":
                    await self._clock.sleep(max(0.0, settled_at_s - self._clock.elapsed_s()))
                case "unknown" if answer.state == "not_done":
                    text = "it was not done so far, but its first executor may only be stopped, and do it yet"
                    return Ran("unknown", text, OutcomeUnknown.code)
                case "unknown" if tries >= RECONCILE_TRIES_MAX:
                    return Ran("unknown", "the provider cannot say whether it was done", OutcomeUnknown.code)
                case _:
                    await self._clock.sleep(PAUSE_S)

    async def _ask(self) -> Reconciled:
        command = self._command
        try:
            async with asyncio.timeout(self._equipment.tool.timeout_s):
                with around(Edge.EXECUTOR_RECONCILE_BEFORE):
                    return await self._equipment.runtime.reconcile(command.tool, command.args, self._context)
        except Exception:  # noqa: BLE001 - a pack may raise anything, and none of it tells the outcome
            return Reconciled("unknown")

    async def _once(self, *, doubt: bool) -> Ran:
        command, tool = self._command, self._equipment.tool
        try:
            async with asyncio.timeout(tool.timeout_s):
                with around(Edge.EXECUTOR_EFFECT_BEFORE):
                    result = await self._equipment.runtime.run(command.tool, command.args, self._context)
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
    text = "it was not done so far, but a request may still be on its way"
    return Ran("unknown", text, OutcomeUnknown.code)
