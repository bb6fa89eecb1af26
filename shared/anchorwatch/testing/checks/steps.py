"""Steps and commands: decided once, in order, by the holder of the turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from anchorwatch.core.anchor import Anchor
from anchorwatch.core.session.events import AnchorChanged, CommandDecided, StepDecided
from anchorwatch.journal.history import History
from anchorwatch.testing.checks.evidence import Evidence, Violation


def check_steps(evidence: Evidence) -> Iterator[Violation]:
    """The steps of each run, and the deciders of its commands."""
    yield from _numbers(evidence.history)
    yield from _holders(evidence.history)
    keys = Counter(each.decided.effect_key for each in evidence.history.commands if each.decided.effect_key)
    for key, count in keys.items():
        if count > 1:
            yield Violation("duplicated", f"{count} commands have the effect key {key}")


def _numbers(history: History) -> Iterator[Violation]:
    decided: dict[int, list[int]] = {}
    for recorded in history.chain:
        match recorded.event:
            case CommandDecided(call=call, head=head) if head is not None:
                decided.setdefault(call.run, []).append(head.step)
            case StepDecided(run=run, head=head):
                decided.setdefault(run, []).append(head.step)
            case _:
                pass
    for run, steps in decided.items():
        if steps != list(range(1, len(steps) + 1)):
            yield Violation("duplicated", f"the steps of run {run} are {steps}")
    calls = [each.call for each in history.commands]
    if calls != sorted(calls):
        yield Violation("duplicated", f"the commands are out of order: {', '.join(map(str, calls))}")


def _holders(history: History) -> Iterator[Violation]:
    anchor: Anchor | None = None
    for recorded in history.chain:
        match recorded.event:
            case AnchorChanged():
                anchor = recorded.event.anchor
            case CommandDecided(call=call, generation=generation):
                if anchor is None or not _holds(anchor, call.run, generation):
                    text = f"the command {call} at {recorded.sequence} was decided by a planner that did not hold the turn"
                    yield Violation("duplicated", text)
            case _:
                pass


def _holds(anchor: Anchor, run: int, generation: int) -> bool:
    return (anchor.status, anchor.run_id, anchor.generation) == ("active", run, generation)
