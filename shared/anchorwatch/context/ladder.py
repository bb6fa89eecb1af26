"""The rungs by which a conversation is shown shorter, cheapest first. Pure: a rung and a state always give the same request.

Each rung keeps what the one before it did. Calls and their results stay together on every rung, and so do the
results of calls that were made together. Rules, objectives, constraints and labelled facts are not the
conversation's: no rung touches them. Above the last rung, whole turns become a summary (`anchorwatch.context.summarise`),
which is recorded, since it cannot be made again from the state.
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
"""About what a stand-in for an output has."""
SHORT_SUMMARY_CHARS = 600


class Rung(IntEnum):
    """How much is left out."""

    WHOLE = 0
    FOLDED = 1
    """Turns in which nothing was done, but for the newest ones, are a line."""
    OLD_OUTPUTS = 2
    """Outputs of earlier turns, but for the newest one's, have stand-ins."""
    PAST_OUTPUTS = 3
    """Outputs of every earlier turn have."""
    EARLIER_STEPS = 4
    """Outputs of this turn's steps before the last one have."""
    ALL_OUTPUTS = 5
    """The last step's have, too."""
    SHORT_SUMMARY = 6
    """Of the summary, only its end is shown."""


def is_no_op(turn: PastTurn) -> bool:
    """Whether nothing was said and nothing was done in it: no person wrote, and no call but for looking came of it."""
    called = any(step.calls for step in turn.steps)
    spoken = any(each.kind == "message" for each in turn.inputs) or any(step.joined for step in turn.steps)
    return turn.outcome == "no_action" and not called and not spoken


def folded(history: tuple[PastTurn, ...], rung: Rung) -> tuple[PastTurn | tuple[PastTurn, ...], ...]:
    """The past as it is shown on ``rung``: turns, and runs of turns that become a line."""
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
    """The running turn's steps as they are shown on ``rung``."""
    if rung < Rung.EARLIER_STEPS:
        return turn.steps
    whole_from = len(turn.steps) if rung >= Rung.ALL_OUTPUTS else len(turn.steps) - 1
    return tuple(
        cut(turn.run_id, step) if index < whole_from else step for index, step in enumerate(turn.steps)
    )


def summary_shown(summary: Summary, rung: Rung) -> str:
    """The summary's text as it is shown on ``rung``."""
    if rung < Rung.SHORT_SUMMARY or len(summary.text) <= SHORT_SUMMARY_CHARS:
        return summary.text
    return f"…{summary.text[-SHORT_SUMMARY_CHARS:]}"


def is_cut(index: int, turns: int, rung: Rung) -> bool:
    """Whether long outputs of the ``index``-th of ``turns`` earlier turns have stand-ins on ``rung``."""
    if rung >= Rung.PAST_OUTPUTS:
        return True
    return rung >= Rung.OLD_OUTPUTS and index < turns - 1


def cut(run_id: int, step: Step) -> Step:
    """The step with stand-ins for its long outputs."""
    return replace(
        step,
        calls=tuple(
            replace(call, text=stand_in(call.text, f"{run_id}.{step.number}.{call.n}", OUTPUT_CHARS))
            for call in step.calls
        ),
    )


def _cut_turn(turn: PastTurn) -> PastTurn:
    return replace(turn, steps=tuple(cut(turn.run_id, step) for step in turn.steps))


# A turn that is over stays the same object, so its shorter form does too, and is rendered and counted once.
_cut_past = ByIdentity(_cut_turn, PAST_REMEMBERED)
