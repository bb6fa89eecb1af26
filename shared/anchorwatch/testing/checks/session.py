"""A session's invariants: no input lost or consumed twice, runs without a gap, one outcome for each command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from anchorwatch.core.records import Kind
from anchorwatch.core.session.transitions import ENDS_TURN
from anchorwatch.journal.history import History
from anchorwatch.testing.checks.evidence import Evidence, Violation
from anchorwatch.testing.checks.wakes import ledger_of


def at_rest(history: History, through: int = 0, channels: Sequence[str] = ()) -> bool:
    """Whether no work is left: idle, every input consumed (at least up to ``through``), no command open.

    ``channels``: those that receive every turn's end; no delivery to them is open either.
    """
    if not history.anchors:
        return False
    anchor = history.anchors[-1].anchor
    waiting = {each.sequence for each in history.inputs if not each.settled} | ({through} - {0})
    waiting = {each for each in waiting if each > anchor.inputs_through} - set(anchor.inputs_joined)
    decided = {each.call for each in history.commands}
    settled = {each.outcome.call for each in history.outcomes}
    return (
        anchor.status == "idle" and not waiting and decided <= settled and _all_delivered(history, channels)
    )


def _all_delivered(history: History, channels: Sequence[str]) -> bool:
    """Whether each delivery of a turn's end has ended."""
    # A delivery id is SEQUENCE-CHANNEL-DIGEST.
    ended = {each.delivery_id.rpartition("-")[0] for each in history.sent if each.state != "claimed"}
    ends = [str(each.sequence) for each in history.of_kind(Kind.TURN_ENDED)]
    return all(f"{end}-{channel}" in ended for end in ends for channel in channels)


def check_session(evidence: Evidence) -> Iterator[Violation]:
    """Inputs, runs and commands."""
    history = evidence.history
    yield from _inputs(evidence)
    yield from _runs(history)
    yield from _commands(history)


def _inputs(evidence: Evidence) -> Iterator[Violation]:
    history = evidence.history
    recorded = {each.sequence for each in history.inputs}
    for sequence in evidence.accepted:
        if sequence not in recorded:
            yield Violation("lost", f"the input accepted at {sequence} is not in the journal")
    ids = {each.input_id for each in history.inputs}
    for input_id in evidence.events:
        if input_id not in ids:
            yield Violation("lost", f"the event {input_id} was stored, but did not become an input")
    runs = [each.anchor.run_id for each in history.of_kind(Kind.ACQUIRED)]
    taken = Counter(each.sequence for run in runs for each in history.taken(run))
    ledger = ledger_of(history)
    cleared = {each.sequence for each in (*ledger.of("superseded"), *ledger.of("refused"))}
    for each in history.inputs:
        if taken[each.sequence] == 0:
            if each.sequence in cleared or each.settled:
                continue
            yield Violation("lost", f"no turn took the input {each.input_id} at {each.sequence}")
        elif taken[each.sequence] > 1:
            yield Violation("duplicated", f"{taken[each.sequence]} turns took the input {each.input_id}")


def _runs(history: History) -> Iterator[Violation]:
    begun = [each.anchor.run_id for each in history.of_kind(Kind.ACQUIRED)]
    if begun != list(range(1, len(begun) + 1)):
        yield Violation("lost", f"the runs are {begun}")
    ended = [each.anchor.run_id for each in history.anchors if each.kind in ENDS_TURN]
    for run in begun:
        if run not in ended:
            yield Violation("lost", f"run {run} has no end")
    for run, count in Counter(
        each.anchor.run_id for each in history.anchors if each.kind == Kind.TURN_ENDED
    ).items():
        if count > 1:
            yield Violation("duplicated", f"run {run} ended {count} times")
    for before, after in pairwise(each.anchor for each in history.anchors):
        if after.generation < before.generation or after.run_id < before.run_id:
            yield Violation(
                "lost",
                f"from run {before.run_id}, generation {before.generation} to {after.run_id}, {after.generation}",
            )


def _commands(history: History) -> Iterator[Violation]:
    decided = Counter(each.call for each in history.commands)
    outcomes = Counter(each.outcome.call for each in history.outcomes if each.outcome.state != "resolved")
    for call, count in decided.items():
        if count > 1:
            yield Violation("duplicated", f"the command {call} was decided {count} times")
        if outcomes[call] > 1:
            yield Violation("duplicated", f"the command {call} has {outcomes[call]} outcomes")
        if history.outcome_of(call) is None:
            yield Violation("lost", f"the command {call} has no outcome")
    for call in outcomes.keys() - decided.keys():
        yield Violation("guessed", f"an outcome of {call}, which no planner decided")
