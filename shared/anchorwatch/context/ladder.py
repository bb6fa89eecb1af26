"""The rungs: fixed steps that shorten the conversation, cheapest first (ADR 5). Pure: a rung and a state give the same request.

Each rung includes the previous ones. Calls stay with their results on every rung, and so do the results of parallel calls.
Rules, objectives, constraints and labelled lines are outside the conversation, and no rung changes them. Beyond the last rung,
whole turns become a summary (`anchorwatch.context.summarise`), which is recorded because it cannot be rendered again.
"""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum

from anchorwatch.core.memo import ByIdentity
from anchorwatch.core.session.outputs import stand_in
from anchorwatch.core.session.state import PastTurn, Step, Summary, Turn
from anchorwatch.models.port import PAST_REMEMBERED

RECENT_TURNS = 2
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
    EARLIER_STEPS = 4
    """Outputs of this turn's steps before the last one become excerpts."""
    ALL_OUTPUTS = 5
    """Outputs of the last step become excerpts, too."""
    SHORT_SUMMARY = 6
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
            shown.append(_cut_past(turn) if is_cut(index, len(history), rung) else turn)
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


def is_cut(index: int, turns: int, rung: Rung) -> bool:
    """Whether long outputs of the ``index``-th of ``turns`` earlier turns become excerpts on ``rung``."""
    if rung >= Rung.PAST_OUTPUTS:
        return True
    return rung >= Rung.OLD_OUTPUTS and index < turns - 1


def cut(run_id: int, step: Step) -> Step:
    """The step with excerpts of its long outputs."""
    return replace(
        step,
        calls=tuple(
            replace(call, text=stand_in(call.text, f"{run_id}.{step.number}.{call.n}", OUTPUT_CHARS))
            for call in step.calls
        ),
    )


def _cut_turn(turn: PastTurn) -> PastTurn:
    return replace(turn, steps=tuple(cut(turn.run_id, step) for step in turn.steps))


# A past turn stays the same object, so its shorter form is rendered and counted once.
_cut_past = ByIdentity(_cut_turn, PAST_REMEMBERED)
