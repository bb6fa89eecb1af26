"""Examines every record of a session, and folds the readable ones. Pure: records in, findings out.

The fold skips unreadable records. A later snapshot replaces the fold: its writer had folded every record before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from anchorwatch.bus.port import Stored
from anchorwatch.core.anchor import Anchor, Status
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.apply import Recorded, apply
from anchorwatch.core.session.events import AnchorChanged, CommandDecided, SnapshotTaken
from anchorwatch.core.session.quarantine import Lost
from anchorwatch.journal.effect_mapping import read_effect
from anchorwatch.journal.integrity.anchors import wrong_with
from anchorwatch.journal.integrity.families import Families
from anchorwatch.journal.integrity.findings import Finding
from anchorwatch.journal.integrity.reading import PREFIX_TOKENS, Place, place_of, read
from anchorwatch.journal.mapping import read_session_record
from anchorwatch.journal.reading import ODD, Opened
from anchorwatch.topology.subjects import WAKE, Register

_ONCE: Final = frozenset({"in", "art", "ctl"})
_FOLDED: Final = frozenset({"in", "p.anchor", "p.log", "p.cmd", "fx.done"})


@dataclass(frozen=True, slots=True)
class Repair:
    """A repair in the journal: the person, and the findings that they accepted."""

    sequence: int
    at_ms: int
    by: str
    note: str
    accepted: frozenset[str]


@dataclass(slots=True)
class Examiner:
    """Examines the records of one session in order.

    ``head``: the last planner record, readable or not. ``anchor``: the last readable one. ``state``: the fold of the readable
    records. ``before_quarantine``: the status before the quarantine.
    """

    ref: SessionRef
    findings: list[Finding] = field(default_factory=list)
    repairs: list[Repair] = field(default_factory=list)
    families: Families = field(default_factory=Families)
    state: SessionState = field(default_factory=SessionState)
    subjects: Counter[str] = field(default_factory=Counter)
    records: int = 0
    first: int = 0
    last: int = 0
    head: Stored | None = None
    anchor: Anchor | None = None
    anchor_sequence: int = 0
    before_quarantine: Status | None = None
    _link: str | None = ""
    _once: set[tuple[str, ...]] = field(default_factory=set)
    _unread_anchors: list[int] = field(default_factory=list)
    _runs: set[int] = field(default_factory=set)
    _is_whole: bool = True

    @property
    def lost(self) -> Lost:
        """The unreadable anchors after the last readable one, and the runs that they may concern."""
        return Lost(tuple(self._unread_anchors), frozenset(self._runs))

    def take(self, stored: Stored) -> None:
        """Examine the next record."""
        self.records += 1
        self.subjects[stored.subject] += 1
        self.first = self.first or stored.sequence
        self.last = stored.sequence
        place = place_of(self.ref, stored)
        self._count(place)
        found = read(self.ref, place)
        if isinstance(found, Finding):
            self.findings.append(found)
            self._pass_over(place)
        else:
            try:
                self._enter(place, found)
            except ODD as error:
                self.findings.append(place.finding("odd", f"it does not fit the session: {error!r}"))
        if place.path[0] == "p":
            self.head = stored

    def miss(self, holes: Iterable[tuple[int, int]], short: Mapping[str, int] | None = None) -> None:
        """Record lost sequences. Those before the first record of the session do not concern it.

        ``short``: for each subject, the number of messages that the server counts and cannot read.
        """
        lost = [(first, through) for first, through in holes if through > self.first]
        what = "the journal lost it"
        if short:
            registers = sorted(".".join(subject.split(".")[PREFIX_TOKENS:]) for subject in short)
            what += f"; the server cannot read all records of this session in {', '.join(registers)}"
        for first, through in lost:
            self.findings.append(Finding(first, "", "", "lost", what, through=through))
        self.findings.sort(key=lambda finding: finding.sequence)
        for subject, count in (short or {}).items():
            self._lose(Register(self.ref, tuple(subject.split(".")[PREFIX_TOKENS:])), count, lost)
        self.families.suspect(lost)

    def _lose(self, register: Register, count: int, lost: Sequence[tuple[int, int]]) -> None:
        """Apply the loss of records of a register that the server counts and cannot read."""
        if register.kind == "p.anchor":
            behind = [(max(first, self.anchor_sequence + 1), last) for first, last in lost]
            places = Lost((), frozenset()).also(count, behind).unreadable
            self._unread_anchors = sorted({*self._unread_anchors, *places})
        elif register.path[0] == "fx":
            call = _call_in(register)
            if call is not None:
                self._runs.add(call.run)
                self.families.lose(register.pool, call, register.kind, lost)

    def miss_last(self, why: str) -> None:
        """Record that the server cannot read the last record of some register; its sequence is unknown."""
        self.findings.append(Finding(self.last + 1, "", "", "lost", why, through=self.last + 1))

    def _count(self, place: Place) -> None:
        if place.kind not in _ONCE or place.path[-1] == WAKE:
            return
        if place.path in self._once:
            self.findings.append(
                place.finding("twice", "its register is written only once, and has an earlier record")
            )
        self._once.add(place.path)

    def _pass_over(self, place: Place) -> None:
        """Skip an unreadable record."""
        if place.path[0] == "p":
            self._link = None
        if place.kind in _FOLDED:
            self._is_whole = False
        if place.kind == "p.anchor":
            self._unread_anchors.append(place.sequence)
        call = _call_of(place)
        if call is not None:
            self._runs.add(call.run)
            self.families.miss(place.path[1], call, place.kind, place.sequence)

    def _enter(self, place: Place, opened: Opened) -> None:
        recorded = read_session_record(place.stored)
        wrong = ""
        call = _call_of(place)
        if call is not None:
            self._runs.add(call.run)
            event, at_ms = read_effect(place.stored), place.stored.time_ms
            wrong = self.families.take(place.path[1], call, place.sequence, at_ms, event)
        if recorded is not None:
            self._follow(place, recorded)
            self._fold(recorded)
            wrong = wrong or self._decided(recorded, opened)
        if wrong:
            self.findings.append(place.finding("odd", wrong))

    def _follow(self, place: Place, recorded: Recorded) -> None:
        if place.path[0] != "p":
            return
        if self._link is not None and recorded.previous != self._link:
            before = f"the planner record at {self.head.sequence}" if self.head else "nothing"
            self.findings.append(
                place.finding("gap", f"it does not follow {before}; a record is missing or altered")
            )
            self._is_whole = False
        self._link = recorded.digest

    def _fold(self, recorded: Recorded) -> None:
        if isinstance(recorded.event, SnapshotTaken) and not self._is_whole:
            self.state, self._is_whole = self.state._replace(head=0), True
        self.state = apply(self.state, recorded)

    def _decided(self, recorded: Recorded, opened: Opened) -> str:
        match recorded.event:
            case AnchorChanged() as event:
                return self._change(recorded.sequence, event, opened.record.at_ms)
            case CommandDecided() as event:
                self._runs.add(event.call.run)
                return self.families.decide(event, recorded.sequence)
            case _:
                return ""

    def _change(self, sequence: int, event: AnchorChanged, at_ms: int) -> str:
        before, unread = self.anchor, bool(self._unread_anchors)
        if event.kind == Kind.QUARANTINED and before is not None and before.status != "quarantined":
            self.before_quarantine = before.status
        if event.kind == Kind.REPAIRED:
            accepted = frozenset(map(str, event.more.get("accepted", ())))
            self.repairs.append(Repair(sequence, at_ms, event.by, event.reason, accepted))
        self.anchor, self.anchor_sequence = event.anchor, sequence
        self._unread_anchors.clear()
        self._runs.clear()
        return wrong_with(before, event.kind, event.anchor, unread=unread)


def _call_of(place: Place) -> CallId | None:
    """The command in the subject of a record."""
    return _call_in(Register(SessionRef("", ""), place.path)) if place.path[0] == "fx" else None


def _call_in(register: Register) -> CallId | None:
    try:
        return register.call
    except (ValueError, IndexError):
        return None
