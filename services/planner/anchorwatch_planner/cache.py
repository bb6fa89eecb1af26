"""Folded states of sessions, kept between looks. A stale one costs a read of its tail; the fence tells when it was too old."""

from __future__ import annotations

from collections import OrderedDict

from anchorwatch.core.names import SessionRef
from anchorwatch.core.session import SessionState


class Cache:
    """The last states of the ``size`` sessions that were used last, and of those whose turn ``execution_id`` holds."""

    def __init__(self, size: int, execution_id: str) -> None:
        self._size = size
        self._execution_id = execution_id
        self._states: OrderedDict[SessionRef, SessionState] = OrderedDict()
        self._held: dict[SessionRef, SessionState] = {}

    def get(self, ref: SessionRef) -> SessionState | None:
        if (held := self._held.get(ref)) is not None:
            return held
        state = self._states.get(ref)
        if state is not None:
            self._states.move_to_end(ref)
        return state

    def put(self, ref: SessionRef, state: SessionState) -> None:
        self.drop(ref)
        if state.is_held_by(self._execution_id):
            self._held[ref] = state
            return
        self._states[ref] = state
        if len(self._states) > self._size:
            self._states.popitem(last=False)

    def drop(self, ref: SessionRef) -> None:
        self._states.pop(ref, None)
        self._held.pop(ref, None)

    def held(self) -> list[SessionRef]:
        """The sessions whose turn this process holds, as far as it knows."""
        return sorted(self._held)
