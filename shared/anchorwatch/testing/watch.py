"""Watches the durable edges of a simulated mesh: it counts them and injects the faults that a test plans at them.

No crash test covers a write between no two edges; `EdgeWatch.unguarded` lists such writes.
"""

from __future__ import annotations

import contextvars
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from anchorwatch.edges import Edge
from anchorwatch.testing.process import Life, current

Strike = Callable[[Life], None]
"""A fault for the process at the edge. It may raise CancelledError, so that no code after the edge runs."""

BEFORE = "before"
NOT_DURABLE = ("$KV.leases.", "$KV.models.", "aw.rpc.")
"""Subjects of state that is not history and is learned again: leases, presence, and models' token counts."""

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
        """Call ``strike`` when any process reaches ``edge`` for the ``reach``-th time from now on."""
        self._plans.setdefault(edge, []).append(_Plan(reach, strike))

    def forget(self) -> None:
        """Drop all plans."""
        self._plans.clear()

    def at(self, edge: Edge) -> None:
        """Count a process at ``edge`` and carry out its plans. Code outside of all processes is not watched."""
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
        """Record a write outside of all edges."""
        if current() is not None and _open.get() is None and not subject.startswith(NOT_DURABLE):
            self.unguarded[subject] += 1
