"""Injected faults of a provider, for tests."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, get_args

from anchorwatch.packs import BadInput

from anchorwatch_fleet.yard.births import Birth
from anchorwatch_fleet.yard.book import Effect

Mode = Literal["slow", "timeout_after", "error", "silent", "die_before_spawn", "die_after_spawn", "none"]
MODES: tuple[Mode, ...] = get_args(Mode)
"""``slow``: waits, acts and answers. ``timeout_after``: acts and does not answer. ``error``: answers with an error and does
nothing. ``silent``: neither acts nor answers. ``die_before_spawn``, ``die_after_spawn``: the yard dies of signal 9 there."""

ANY_VERB = "*"
TIMES_MAX = 10_000
SLOW_S_MAX = 120.0
BIRTH_POLL_S = 0.02


@dataclass
class Fault:
    """A mode, for a number of requests."""

    mode: Mode
    times: int
    slow_s: float


@dataclass
class Faults:
    """The injected faults, by verb. ``births``: reads the workers' births."""

    by_verb: dict[str, Fault] = field(default_factory=dict)
    births: Callable[[], list[Birth]] = list
    _dies_at: str = ""

    def set(self, mode: str, verb: str = ANY_VERB, times: int = 1, slow_s: float = 3.0) -> None:
        """Misbehave in the next ``times`` requests of that verb. ``none`` behaves again: for the verb, or for all with ``*``.

        Raises:
            BadInput: the mode is unknown.
        """
        chosen = next((each for each in MODES if each == mode), None)
        if chosen is None:
            raise BadInput(f"unknown fault mode {mode!r}", hint=f"use {', '.join(MODES)}")
        if chosen == "none":
            if verb == ANY_VERB:
                self.by_verb.clear()
            self.by_verb.pop(verb, None)
        else:
            self.by_verb[verb] = Fault(
                chosen, min(max(times, 1), TIMES_MAX), min(max(slow_s, 0.0), SLOW_S_MAX)
            )

    def take(self, verb: str) -> Fault | None:
        """The fault of this request, which is counted."""
        for name in (verb, ANY_VERB):
            fault = self.by_verb.get(name)
            if fault is not None:
                fault.times -= 1
                if fault.times <= 0:
                    del self.by_verb[name]
                self._dies_at = (
                    fault.mode.removeprefix("die_") if fault.mode.startswith("die_") else self._dies_at
                )
                return fault
        return None

    async def hook(self, point: str, effect: Effect) -> None:
        """Die with signal 9 in a ``die_…`` mode; after a spawn, once the workers have recorded their births."""
        if point != self._dies_at:
            return
        while point == "after_spawn" and not self._are_born(effect):  # noqa: ASYNC110 - a file sends no notification
            await asyncio.sleep(BIRTH_POLL_S)
        os.kill(os.getpid(), signal.SIGKILL)

    def _are_born(self, effect: Effect) -> bool:
        return {(birth.instance, birth.epoch) for birth in self.births()}.issuperset(effect.targets)
