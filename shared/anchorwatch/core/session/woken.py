"""The trigger of a turn, in words: what it is, and its line in the timeline."""

from __future__ import annotations

from collections.abc import Sequence

from anchorwatch.core.session.state import Input
from anchorwatch.core.session.wakes import SCHEDULE_SOURCE

NAME_CHARS_MAX = 80


def woken(inputs: Sequence[Input], in_hand: int) -> str:
    """Such as ``trigger: event fleet.instance.dead (seq 17), 2 more``; empty without inputs.

    ``in_hand``: sequence of the message that the planner holds. If that is not an input (an order, say), the most
    urgent input is named; for a tick that ended a debounce window, the input that the window was for.
    """
    if not inputs:
        return ""
    by_sequence = {each.sequence: each for each in inputs}
    found = by_sequence.get(in_hand) or min(inputs, key=lambda each: (each.priority, each.sequence))
    found = by_sequence.get(waited_for(found.input_id) or 0, found)
    more = f", {len(inputs) - 1} more" if len(inputs) > 1 else ""
    return f"trigger: {_named(found)} (seq {found.sequence}){more}"


def waited_for(input_id: str) -> int | None:
    """The sequence of the input whose debounce window the tick of this id ended; None for every other id."""
    what, _, sequence = input_id.partition("-")
    return int(sequence) if what == "tick" and sequence.isdecimal() else None


def _named(wake: Input) -> str:
    match wake.kind:
        case "event":
            return f"event {_clip('.'.join(part for part in (wake.source, wake.type) if part))}"
        case "message":
            return "message"
        case "trigger":
            return "manual"
        case "resolution":
            return "resolution of an unknown outcome"
        case "canary":
            return "canary after a reset"
        case "tick" if wake.source == SCHEDULE_SOURCE:
            return f"schedule {wake.type}"
        case "tick":
            return "debounce window ended" if wake.type == "tick" else "scheduled check"


def _clip(name: str) -> str:
    return name if len(name) <= NAME_CHARS_MAX else f"{name[: NAME_CHARS_MAX - 1]}…"
