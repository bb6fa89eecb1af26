"""Helpers of the checks: texts of values, and readings of a history. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from anchorwatch.core.session.state import Input
from anchorwatch.journal.history import Command, History

SHOWN_MAX = 6
LAUNCH, RESTART, STOP = "launch_instances", "restart_instance", "stop_instance"


def facts(values: Mapping[str, Any]) -> str:
    """Named values; None is ``unknown``."""
    return ", ".join(f"{name}={_word(value)}" for name, value in values.items())


def _word(value: object) -> str:
    if value is None:
        return "unknown"
    return str(value).lower() if isinstance(value, bool) else str(value)


def counted(kinds: Counter[str]) -> str:
    """The count of each kind."""
    return ", ".join(f"{count} × {name}" for name, count in kinds.items()) or "nothing"


def pairs(counts: Mapping[str, int]) -> str:
    """Names and numbers, by name."""
    return ", ".join(f"{key}: {count}" for key, count in sorted(counts.items())) or "none"


def some(values: Iterable[object]) -> str:
    """The first values and the number of others; ``none`` without a value."""
    words = [str(value) for value in values]
    more = [f"and {len(words) - SHOWN_MAX} more"] if len(words) > SHOWN_MAX else []
    return ", ".join((*words[:SHOWN_MAX], *more)) or "none"


def launches(history: History) -> list[Command]:
    """The launches that the agent decided."""
    return [each for each in history.commands if each.decided.tool == LAUNCH]


def first_launch(history: History) -> Command | None:
    """The agent's first launch."""
    return next(iter(launches(history)), None)


def waker_of(history: History, run: int, taken: tuple[Input, ...]) -> Input | None:
    """The input that woke a run. A tick that ends a debounce window names the input that opened it."""
    begun = history.acquired(run)
    woken_by = begun.anchor.turn.woken_by if begun and begun.anchor.turn else 0
    waker = next((each for each in taken if each.sequence == woken_by), None)
    if waker is not None and waker.input_id.startswith("tick-"):
        opener = int(waker.input_id.removeprefix("tick-"))
        return next((each for each in taken if each.sequence == opener), None)
    return waker


def named(each: Input) -> str:
    """The name of an event, or the kind of another input."""
    return ".".join(part for part in (each.source, each.type) if part) if each.kind == "event" else each.kind
