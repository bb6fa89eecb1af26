"""What woke a turn, in words for people: what it is, and at which line of the timeline it stands."""

from __future__ import annotations

from collections.abc import Sequence

from anchorwatch.core.session.state import Input
from anchorwatch.core.session.wakes import SCHEDULE_SOURCE

NAME_CHARS_MAX = 80


def woken(inputs: Sequence[Input], in_hand: int) -> str:
    """Such as ``woken by the event fleet.instance.dead (seq 17) and 2 more``; empty: nothing waited.

    ``in_hand``: sequence of the message that the planner holds. It may be no input, as an order is none; then the most urgent
    input counts. Of a tick that was made for an input that waited, that input does.
    """
    if not inputs:
        return ""
    by_sequence = {each.sequence: each for each in inputs}
    found = by_sequence.get(in_hand) or min(inputs, key=lambda each: (each.priority, each.sequence))
    found = by_sequence.get(waited_for(found.input_id) or 0, found)
    more = f" and {len(inputs) - 1} more" if len(inputs) > 1 else ""
    return f"woken by {_named(found)} (seq {found.sequence}){more}"


def waited_for(input_id: str) -> int | None:
    """The sequence of the input that waited, and for which the tick of this id was made; None: it is no such tick's."""
    what, _, sequence = input_id.partition("-")
    return int(sequence) if what == "tick" and sequence.isdecimal() else None


def _named(wake: Input) -> str:
    match wake.kind:
        case "event":
            return f"the event {_clip('.'.join(part for part in (wake.source, wake.type) if part))}"
        case "message":
            return "what a person said"
        case "trigger":
            return "a person's wish for a turn"
        case "resolution":
            return "a person's word on an effect"
        case "canary":
            return "the canary behind a reset"
        case "tick" if wake.source == SCHEDULE_SOURCE:
            return f"the schedule {wake.type}"
        case "tick":
            return "an input that waited" if wake.type == "tick" else "the time for a check"


def _clip(name: str) -> str:
    return name if len(name) <= NAME_CHARS_MAX else f"{name[: NAME_CHARS_MAX - 1]}…"
