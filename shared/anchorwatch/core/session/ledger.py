"""The wake ledger: every wake-up of a session with its one disposition, derived from the journal alone (INV-401).

A wake-up is an accepted input, an outcome of a command, or a person's order. The ledger does not use the session machine's
fold, so that one can be checked against the other.

- An input *ran* if a turn consumed it (at its start, or by joining it), or *coalesced* if another input of its family in
  that turn said the same; it *expired*, was *superseded* by an order, or was *refused*: its session was deleted, or too many
  inputs were pending while it was held. An occurrence of a schedule that no turn takes has its disposition from the start.
- An outcome *ran* if it settled its step, so that the turn continued; earlier ones of the step *coalesced*. An outcome
  after its turn is *superseded*.
- An order *ran*: its record carries it out. A refused order has no record and is not a wake-up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from anchorwatch.core.records import Kind
from anchorwatch.core.session.apply import Recorded
from anchorwatch.core.session.events import (
    AnchorChanged,
    CommandDecided,
    InputAccepted,
    OutcomeRecorded,
    StepDecided,
    StepHead,
)
from anchorwatch.core.session.state import Input
from anchorwatch.core.session.transitions import CONTROLS
from anchorwatch.core.session.wakes import Disposition, dispositions

WakeKind = Literal["input", "outcome", "control"]
CLEARED = {Kind.RESET: "a reset disposed of it", Kind.WAKES_CLEARED: "a person cleared the pending inputs"}
DELETED = "the session was deleted"
OVER = "its turn had ended"


@dataclass(frozen=True, slots=True)
class Wake:
    """A wake at a journal sequence. ``run``: the turn that consumed it, or that the order concerns (0: none)."""

    sequence: int
    kind: WakeKind
    disposition: Disposition | Literal["pending"] = "pending"
    run: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Ledger:
    """All wakes by their sequence. ``twice``: sequences with two dispositions, which must not occur."""

    wakes: Mapping[int, Wake]
    twice: tuple[int, ...] = ()

    def of(self, disposition: str) -> tuple[Wake, ...]:
        """The wake-ups with this disposition."""
        return tuple(each for each in self.wakes.values() if each.disposition == disposition)


def read_ledger(records: Iterable[Recorded]) -> Ledger:
    """The ledger of a session from its records, in the journal's order."""
    book = _Book()
    for record in records:
        book.enter(record)
    return Ledger(dict(sorted(book.wakes.items())), tuple(book.twice))


@dataclass
class _Book:
    wakes: dict[int, Wake] = field(default_factory=dict)
    waiting: dict[int, Input] = field(default_factory=dict)
    outcomes: list[int] = field(default_factory=list)
    twice: list[int] = field(default_factory=list)
    run: int = 0
    deleted: bool = False

    def enter(self, record: Recorded) -> None:
        event = record.event
        match event:
            case InputAccepted():
                self._accept(event.input)
            case OutcomeRecorded():
                self._outcome(record.sequence, event.call.run)
            case AnchorChanged():
                self._anchor(record.sequence, event)
            case CommandDecided() if event.head is not None:
                self._step(event.head)
            case StepDecided():
                self._step(event.head)
            case _:
                pass

    def _accept(self, given: Input) -> None:
        if given.sequence in self.wakes:
            self.twice.append(given.sequence)
            return
        self.wakes[given.sequence] = Wake(given.sequence, "input")
        if given.settled:
            self._dispose(given.sequence, given.settled, why=given.why)
        elif self.deleted:
            self._dispose(given.sequence, "refused", why=DELETED)
        else:
            self.waiting[given.sequence] = given

    def _outcome(self, sequence: int, run: int) -> None:
        self.wakes[sequence] = Wake(sequence, "outcome")
        if run == self.run:
            self.outcomes.append(sequence)
        else:
            self._dispose(sequence, "superseded", run, OVER)

    def _anchor(self, sequence: int, event: AnchorChanged) -> None:
        anchor = event.anchor
        if event.kind in CONTROLS:
            run = self.run or (anchor.turn and anchor.run_id) or 0
            self.wakes[sequence] = Wake(sequence, "control", "ran", run, event.kind)
        if event.kind == Kind.ACQUIRED and anchor.turn is not None:
            self.run = anchor.run_id
            taken = [each for each in self.waiting.values() if each.sequence <= anchor.turn.inputs_through]
            for wake, disposition in dispositions(taken, event.at_ms):
                self._dispose(wake.sequence, disposition, anchor.run_id)
        elif event.kind == Kind.TURN_ENDED:
            self._step(event.head)
            self.run = 0
        elif anchor.turn is None and self.run:
            self._settle("superseded", OVER)
            self.run = 0
        if event.kind in CLEARED:
            self._clear(anchor.inputs_through, "superseded", CLEARED[event.kind])
        if event.kind == Kind.INPUTS_REFUSED:
            self._clear(anchor.inputs_through, "refused", event.reason)
        if event.kind == Kind.DELETED:
            self.deleted = True
            self._clear(max(self.waiting, default=0), "refused", DELETED)

    def _step(self, head: StepHead | None) -> None:
        """The turn continued: it saw its outcomes so far and consumed what joined it."""
        self._settle("coalesced")
        for sequence in head.joined if head else ():
            # A message to the turn itself was an order and has its disposition.
            if sequence in self.waiting:
                self._dispose(
                    sequence, "ran", self.run, f"it joined the turn at step {head.step if head else 0}"
                )

    def _settle(self, others: Disposition, why: str = "") -> None:
        *before, last = self.outcomes or [0]
        for sequence in before:
            self._dispose(sequence, others, self.run, why)
        if last:
            self._dispose(last, "ran" if others == "coalesced" else others, self.run, why)
        self.outcomes = []

    def _clear(self, through: int, disposition: Disposition, why: str) -> None:
        for sequence in [each for each in self.waiting if each <= through]:
            self._dispose(sequence, disposition, why=why)

    def _dispose(self, sequence: int, disposition: Disposition, run: int = 0, why: str = "") -> None:
        wake = self.wakes[sequence]
        self.waiting.pop(sequence, None)
        if wake.disposition != "pending":
            self.twice.append(sequence)
            return
        self.wakes[sequence] = replace(wake, disposition=disposition, run=run, why=why)
