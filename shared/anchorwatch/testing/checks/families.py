"""The records of a command's effect: their order, and the fence of the run."""

from __future__ import annotations

from collections.abc import Iterator

from anchorwatch.core.effect.state import EffectState, Outcome, apply_effect
from anchorwatch.core.names import CallId
from anchorwatch.core.tools import EffectClass
from anchorwatch.journal.history import History
from anchorwatch.testing.checks.evidence import Call, Evidence, Violation


def check_families(evidence: Evidence) -> Iterator[Violation]:
    """The order within each family, late records, and claims after the fence of their run."""
    history = evidence.history
    yield from _order(history)
    yield from _late(history)
    for command in history.commands:
        if evidence.classes.get(command.decided.tool, EffectClass.READ) is not EffectClass.READ:
            yield from _fenced(evidence, command.call)


def _order(history: History) -> Iterator[Violation]:
    decided = {each.call: each.sequence for each in history.commands}
    for call, family in history.families.items():
        if call in decided and family[0][0] < decided[call]:
            yield Violation("guessed", f"{call} has a record at {family[0][0]}, before it was decided")
        ended = ""
        for sequence, event in family:
            settles = isinstance(event, Outcome) and event.state == "resolved"
            if ended and not (ended == "unknown" and (settles or not isinstance(event, Outcome))):
                yield Violation("duplicated", f"{call} ended {ended}, but has another record at {sequence}")
            if isinstance(event, Outcome):
                ended = event.state


def _late(history: History) -> Iterator[Violation]:
    """A late record follows the record that refused its outcome: a later claim, or an outcome."""
    for late in history.late:
        family = history.families.get(late.outcome.call, ())
        if not any(late.outcome.claim_sequence < sequence < late.sequence for sequence, _ in family):
            yield Violation(
                "guessed", f"the late record at {late.sequence} follows no other claim or outcome"
            )


def _fenced(evidence: Evidence, call: CallId) -> Iterator[Violation]:
    """A command whose first claim is later than the fence of its run was never started."""
    history = evidence.history
    raised = (each.sequence for each in history.anchors if each.anchor.fence.run > call.run)
    fenced_at = next(raised, None)
    state = EffectState()
    for sequence, event in history.families.get(call, ()):
        state = apply_effect(state, sequence, 0, event)
    if fenced_at is None or state.claim is None or state.first_claim < fenced_at:
        return
    call_made = evidence.calls.get(state.claim.effect_key, Call(state.claim.effect_key))
    if call_made.begun or call_made.done:
        text = f"{call} was claimed at {state.first_claim}, after its fence at {fenced_at}, but was started"
        yield Violation("guessed", text)
