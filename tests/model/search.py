"""A breadth-first search over all interleavings: every state once, the shortest trace to what is wrong, and whether rest stays
reachable from everywhere."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

State = TypeVar("State", bound=Hashable)


class Move(NamedTuple, Generic[State]):
    """One atomic action. ``fair``: it happens sooner or later by itself: no fault, and nobody's choice."""

    label: str
    after: State
    fair: bool = True


@dataclass(frozen=True)
class Found:
    """What a search came to. ``broken`` is empty when every property held; ``trace`` leads there."""

    states: int
    moves: int
    broken: str
    trace: tuple[str, ...]

    def __str__(self) -> str:
        said = f"{self.states} states, {self.moves} moves"
        if not self.broken:
            return f"{said}: every property holds"
        return "\n".join(
            [f"{said}: {self.broken}", *(f"  {n:2}. {step}" for n, step in enumerate(self.trace, 1))]
        )


class TooMany(Exception):
    """The bound on states was reached before the search was through: it proves nothing."""


class Search(Generic[State]):
    """``moves``: what can happen in a state; ``check``: the property that it breaks; ``rests``: nothing is left to do."""

    def __init__(
        self,
        moves: Callable[[State], Iterable[Move[State]]],
        check: Callable[[State], str],
        rests: Callable[[State], bool],
    ) -> None:
        self._moves = moves
        self._check = check
        self._rests = rests
        self._index: dict[State, int] = {}
        self._parents = array("q")
        self._labels: list[str] = []
        self._count = 0
        self._fair_from = array("q")
        self._fair_to = array("q")

    def run(self, start: State, states_max: int) -> Found:
        """Look at every state that ``start`` leads to.

        Raises:
            TooMany: there are more than ``states_max``.
        """
        frontier = [start]
        self._enter(start, -1, "start")
        while frontier:
            following: list[State] = []
            for state in frontier:
                here = self._index[state]
                for move in self._moves(state):
                    self._count += 1
                    there = self._index.get(move.after)
                    if there is None:
                        there = self._enter(move.after, here, move.label)
                        following.append(move.after)
                        if broken := self._check(move.after):
                            return Found(len(self._index), self._count, broken, self._trace(there))
                    if move.fair:
                        self._fair_from.append(here)
                        self._fair_to.append(there)
            if len(self._index) > states_max:
                raise TooMany(f"more than {states_max} states")
            frontier = following
        return self._settle()

    def _enter(self, state: State, parent: int, label: str) -> int:
        number = len(self._index)
        self._index[state] = number
        self._parents.append(parent)
        self._labels.append(label)
        return number

    def _trace(self, number: int) -> tuple[str, ...]:
        labels = []
        while number > 0:
            labels.append(self._labels[number])
            number = self._parents[number]
        return tuple(reversed(labels))

    def _settle(self) -> Found:
        """Whether rest can be reached from every state by fair moves alone."""
        good = bytearray(len(self._index))
        queue = [number for state, number in self._index.items() if self._rests(state)]
        for number in queue:
            good[number] = 1
        backwards: dict[int, list[int]] = {}
        for source, target in zip(self._fair_from, self._fair_to, strict=True):
            backwards.setdefault(target, []).append(source)
        while queue:
            for source in backwards.get(queue.pop(), ()):
                if not good[source]:
                    good[source] = 1
                    queue.append(source)
        stuck = good.find(0)
        if stuck < 0:
            return Found(len(self._index), self._count, "", ())
        return Found(
            len(self._index), self._count, "stuck: rest cannot be reached from here", self._trace(stuck)
        )
