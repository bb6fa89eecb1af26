"""Packs that violate their tools' effect classes, for the crash test to find."""

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

from tests.support.scripted import ScriptedPack, ScriptedRuntime


@dataclass
class CarelessRuntime(ScriptedRuntime):
    """Reports every effect as done."""

    async def reconcile(self, tool: str, args: Mapping[str, Any], context: ToolContext) -> Reconciled:
        del tool, args, context
        return Reconciled("done")


class CarelessPack(ScriptedPack):
    """`set` is declared idempotent, but its provider ignores the key; `build` is declared reconcilable, but is not reconciled."""

    name = "careless"
    runtime = CarelessRuntime
    honour = False


CARELESS = CarelessPack()


@dataclass
class HastyRuntime(ScriptedRuntime):
    """Reports a call with a lost answer as certainly not done."""

    async def run(self, tool: str, args: Mapping[str, Any], context: ToolContext) -> ToolResult:
        try:
            return await super().run(tool, args, context)
        except OutcomeUnknown as error:
            raise ToolFailed(str(error)) from None


class HastyPack(ScriptedPack):
    """Takes a missing answer for "not done". Only a living executor shows the fault: the word of a dead one is not used."""

    name = "hasty"
    runtime = HastyRuntime


HASTY = HastyPack()
