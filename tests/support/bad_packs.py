"""A pack that does not keep what its tools' effect classes promise, so that a crash test has something to find."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anchorwatch.packs.port import (
    OutcomeUnknown,
    Reconciled,
    ToolContext,
    ToolFailed,
    ToolResult,
)

from tests.support.told import ToldPack, ToldRuntime


@dataclass
class CarelessRuntime(ToldRuntime):
    """Says of every effect that it was done."""

    async def reconcile(self, tool: str, args: Mapping[str, Any], context: ToolContext) -> Reconciled:
        del tool, args, context
        return Reconciled("done")


class CarelessPack(ToldPack):
    """`set` is declared idempotent, and its provider ignores the key; `build` is declared reconcilable, and nobody is asked."""

    name = "careless"
    runtime = CarelessRuntime
    honour = False


CARELESS = CarelessPack()


@dataclass
class HastyRuntime(ToldRuntime):
    """Says of a call whose answer was lost that it certainly was not done."""

    async def run(self, tool: str, args: Mapping[str, Any], context: ToolContext) -> ToolResult:
        try:
            return await super().run(tool, args, context)
        except OutcomeUnknown as error:
            raise ToolFailed(str(error)) from None


class HastyPack(ToldPack):
    """Takes no answer for "not done". Only a living executor shows it: behind a dead one such a word counts for nothing."""

    name = "hasty"
    runtime = HastyRuntime


HASTY = HastyPack()
