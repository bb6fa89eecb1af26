"""The rungs: fixed steps that shorten the conversation, cheapest first (ADR 5). Pure: a rung and a state give the same request.

Each rung includes the previous ones. Calls stay with their results on every rung, and so do the results of parallel calls.
Rules, objectives, constraints and labelled lines are outside the conversation, and no rung changes them. Beyond the last rung,
whole turns become a summary (`anchorwatch.context.summarise`), which is recorded because it cannot be rendered again.
"""

from __future__ import annotations

from enum import IntEnum

from anchorwatch.core.memo import ByIdentity
from anchorwatch.core.session.conversation import (
    RECENT_TURNS,
    with_excerpts,
    with_short_calls,
    with_short_outputs,
)
from anchorwatch.core.session.outputs import is_stand_in
from anchorwatch.core.session.state import PastTurn, Step, Summary, Turn
from anchorwatch.models.port import PAST_REMEMBERED

OUTPUT_CHARS = 400
"""Approximate size of an excerpt of an output."""
SHORT_SUMMARY_CHARS = 600


class Rung(IntEnum):
    """How much the request omits."""

    WHOLE = 0
    FOLDED = 1
    """Turns without actions, except the newest ones, become a line."""
    OLD_OUTPUTS = 2
    """Outputs of earlier turns, except the newest one, become excerpts."""
    PAST_OUTPUTS = 3
    """Outputs of every earlier turn become excerpts."""
    PAST_TEXTS = 4
    """Long messages, and the model's long texts, of every earlier turn become excerpts."""
    EARLIER_STEPS = 5
    """Outputs of this turn's steps before the last one become excerpts."""
    ALL_OUTPUTS = 6
    """Outputs of the last step become excerpts, too."""
    SHORT_SUMMARY = 7
    """Only the end of the summary is shown."""


def is_no_op(turn: PastTurn) -> bool:
    """Whether the turn had no action and no message from a person."""
    called = any(step.calls for step in turn.steps)
    spoken = any(each.kind == "message" for each in turn.inputs) or any(step.joined for step in turn.steps)
    return turn.outcome == "no_action" and not called and not spoken


def folded(history: tuple[PastTurn, ...], rung: Rung) -> tuple[PastTurn | tuple[PastTurn, ...], ...]:
    """The past on ``rung``: turns, and groups of turns that become a line."""
    if rung < Rung.FOLDED:
        return history
    shown: list[PastTurn | tuple[PastTurn, ...]] = []
    old = len(history) - RECENT_TURNS
    for index, turn in enumerate(history):
        if index >= old or not is_no_op(turn):
            shown.append(_past_shown(turn, index, len(history), rung))
        elif shown and isinstance(shown[-1], tuple):
            shown[-1] = (*shown[-1], turn)
        else:
            shown.append((turn,))
    return tuple(shown)


def steps_shown(turn: Turn, rung: Rung) -> tuple[Step, ...]:
    """The running turn's steps on ``rung``."""
    if rung < Rung.EARLIER_STEPS:
        return turn.steps
    whole_from = len(turn.steps) if rung >= Rung.ALL_OUTPUTS else len(turn.steps) - 1
    return tuple(
        cut(turn.run_id, step) if index < whole_from else step for index, step in enumerate(turn.steps)
    )


def summary_shown(summary: Summary, rung: Rung) -> str:
    """The summary's text on ``rung``."""
    if rung < Rung.SHORT_SUMMARY or len(summary.text) <= SHORT_SUMMARY_CHARS:
        return summary.text
    return f"…{summary.text[-SHORT_SUMMARY_CHARS:]}"


def shortened_runs(history: tuple[PastTurn, ...], rung: Rung) -> tuple[int, ...]:
    """The runs that are shown with an excerpt in place of a long text, on ``rung``."""
    shown = folded(history, rung)
    return tuple(each.run_id for each in shown if isinstance(each, PastTurn) and has_excerpt(each))


def _past_shown(turn: PastTurn, index: int, turns: int, rung: Rung) -> PastTurn:
    if rung >= Rung.PAST_TEXTS:
        return cut_past(turn)
    if rung >= Rung.PAST_OUTPUTS or (rung >= Rung.OLD_OUTPUTS and index < turns - 1):
        return _cut_outputs(turn)
    return turn


def cut(run_id: int, step: Step) -> Step:
    """The step with excerpts of its long outputs."""
    return with_short_calls(run_id, step, OUTPUT_CHARS)


def _has_excerpt(turn: PastTurn) -> bool:
    texts = [each.text for each in turn.inputs]
    for step in turn.steps:
        texts += [step.text, *(each.text for each in step.joined), *(call.text for call in step.calls)]
    return any(map(is_stand_in, texts))


# A past turn stays the same object, so its shorter forms are rendered and counted once.
_cut_outputs: ByIdentity[PastTurn, PastTurn] = ByIdentity(
    lambda turn: with_short_outputs(turn, OUTPUT_CHARS), PAST_REMEMBERED
)
cut_past: ByIdentity[PastTurn, PastTurn] = ByIdentity(
    lambda turn: with_excerpts(_cut_outputs(turn)), PAST_REMEMBERED
)
has_excerpt: ByIdentity[PastTurn, bool] = ByIdentity(_has_excerpt, PAST_REMEMBERED)
"""``cut_past``: a turn with excerpts of all its long texts. ``has_excerpt``: whether a turn has one."""
