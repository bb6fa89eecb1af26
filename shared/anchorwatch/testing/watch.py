"""Watches the durable edges of a simulated mesh: counts them, strikes at those that a test plans for, and misses none.

A write that reaches the server outside of two edges is one that no crash was ever tried at; `EdgeWatch.unguarded` names it.
"""

from __future__ import annotations

import contextvars
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from anchorwatch.edges import Edge
from anchorwatch.testing.process import Life, current

Strike = Callable[[Life], None]
"""What happens to the process that is at the edge; it may raise CancelledError, so that nothing behind the edge runs."""

BEFORE = "before"
NOT_DURABLE = ("$KV.leases.", "$KV.models.", "aw.rpc.")
"""Who leads, who is present and how a model counts says nothing about what happened, and is learned anew."""

_open: contextvars.ContextVar[Edge | None] = contextvars.ContextVar("edge", default=None)


@dataclass(slots=True)
class _Plan:
    reach: int
    strike: Strike


class EdgeWatch:
    """The hook for `anchorwatch.edges.install`, and for `SimServer.on_write`."""

    def __init__(self) -> None:
        self.reached: Counter[Edge] = Counter()
        self.unguarded: Counter[str] = Counter()
        self._plans: dict[Edge, list[_Plan]] = {}

    def plan(self, edge: Edge, reach: int, strike: Strike) -> None:
        """Strike when a process reaches ``edge`` for the ``reach``-th time from here on, whichever process it is."""
        self._plans.setdefault(edge, []).append(_Plan(reach, strike))

    def forget(self) -> None:
        """Strike no more."""
        self._plans.clear()

    def at(self, edge: Edge) -> None:
        """A process is at ``edge``; what runs outside of all processes is not watched."""
        life = current()
        if life is None:
            return
        self.reached[edge] += 1
        _open.set(edge if edge.value.endswith(BEFORE) else None)
        due = []
        for plan in self._plans.get(edge, ()):
            plan.reach -= 1
            if plan.reach == 0:
                due.append(plan)
        for plan in due:
            self._plans[edge].remove(plan)
            plan.strike(life)

    def on_write(self, subject: str) -> None:
        """A client is about to write."""
        if current() is not None and _open.get() is None and not subject.startswith(NOT_DURABLE):
            self.unguarded[subject] += 1
