"""What several checks read out of a history. Pure."""

from __future__ import annotations

from anchorwatch.core.session.state import Input
from anchorwatch.journal.history import Command, History

LAUNCH, RESTART, STOP = "launch_instances", "restart_instance", "stop_instance"


def launches(history: History) -> list[Command]:
    """The launches that the agent decided."""
    return [each for each in history.commands if each.decided.tool == LAUNCH]


def first_launch(history: History) -> Command | None:
    """The first of them."""
    return next(iter(launches(history)), None)


def waker_of(history: History, run: int, taken: tuple[Input, ...]) -> Input | None:
    """What woke a run. Behind the tick that ends a debounce window stands the input that opened it, named by the tick."""
    begun = history.acquired(run)
    woken_by = begun.anchor.turn.woken_by if begun and begun.anchor.turn else 0
    waker = next((each for each in taken if each.sequence == woken_by), None)
    if waker is not None and waker.input_id.startswith("tick-"):
        behind = int(waker.input_id.removeprefix("tick-"))
        return next((each for each in taken if each.sequence == behind), None)
    return waker


def named(each: Input) -> str:
    """An input by its kind; an event by its own name."""
    return ".".join(part for part in (each.source, each.type) if part) if each.kind == "event" else each.kind
