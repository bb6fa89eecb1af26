"""Folded states of sessions, kept between looks. A stale one costs a read of its tail; the fence tells when it was too old."""

from __future__ import annotations

from collections import OrderedDict

from anchorwatch.core.names import SessionRef
from anchorwatch.core.session import SessionState


class Cache:
    """The last states of the ``size`` sessions that were used last."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._states: OrderedDict[SessionRef, SessionState] = OrderedDict()

    def get(self, ref: SessionRef) -> SessionState | None:
        state = self._states.get(ref)
        if state is not None:
            self._states.move_to_end(ref)
        return state

    def put(self, ref: SessionRef, state: SessionState) -> None:
        self._states[ref] = state
        self._states.move_to_end(ref)
        if len(self._states) > self._size:
            self._states.popitem(last=False)

    def drop(self, ref: SessionRef) -> None:
        self._states.pop(ref, None)
