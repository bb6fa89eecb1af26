"""Messages to a running turn, and when they join it."""

from __future__ import annotations

from collections.abc import Collection

from anchorwatch.core.session.state import P0, Input, SessionState

JOINING_MAX = 20
"""Messages that join at one step; the others wait for the next step or turn."""


def joining(state: SessionState, *, steered_only: bool = False) -> tuple[Input, ...]:
    """The messages to show to the running turn's model at its next step, in their order.

    Messages to this turn always join; so do urgent messages of people since its start, unless ``steered_only``: without room
    in this turn they wait for the next one.
    """
    if state.turn is None:
        return ()
    urgent = [each for each in state.pending if each.kind == "message" and each.priority == P0]
    joined = (*state.turn.steered, *([] if steered_only else urgent[:JOINING_MAX]))
    return tuple(sorted(joined, key=lambda each: each.sequence))


def named(state: SessionState, sequences: Collection[int]) -> tuple[Input, ...]:
    """The pending inputs and messages at these sequences, in their order."""
    waiting = (*state.pending, *(state.turn.steered if state.turn else ()))
    return tuple(
        sorted((each for each in waiting if each.sequence in sequences), key=lambda each: each.sequence)
    )
