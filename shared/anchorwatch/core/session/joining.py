"""What people say while a turn runs, and when it joins that turn."""

from __future__ import annotations

from collections.abc import Collection

from anchorwatch.core.session.state import P0, Input, SessionState

JOINING_MAX = 20
"""So many messages join at one step; the others wait for the next one, or for the next turn."""


def joining(state: SessionState, *, steered_only: bool = False) -> tuple[Input, ...]:
    """What the model of the running turn is to be shown at its next step, in the order in which it was said.

    What was said to this very turn, always; and urgent messages of people that came since it began (unless
    ``steered_only``: they can wait for the next turn, where there is no room for them in this one).
    """
    if state.turn is None:
        return ()
    urgent = [each for each in state.pending if each.kind == "message" and each.priority == P0]
    joined = (*state.turn.steered, *([] if steered_only else urgent[:JOINING_MAX]))
    return tuple(sorted(joined, key=lambda each: each.sequence))


def named(state: SessionState, sequences: Collection[int]) -> tuple[Input, ...]:
    """What waits and stands at these sequences, in the order in which it was said."""
    waiting = (*state.pending, *(state.turn.steered if state.turn else ()))
    return tuple(
        sorted((each for each in waiting if each.sequence in sequences), key=lambda each: each.sequence)
    )
