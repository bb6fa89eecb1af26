"""The journal of the model: real events, each record a small number, and the server's one strong thing, compare-and-set."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from anchorwatch.core.effect import EffectState
from anchorwatch.core.effect.state import EffectEvent, Outcome, apply_effect
from anchorwatch.core.names import CallId
from anchorwatch.core.session import SessionState, apply
from anchorwatch.core.session.apply import Recorded
from anchorwatch.core.session.events import (
    AnchorChanged,
    CommandDecided,
    Event,
    InputAccepted,
    OutcomeRecorded,
    PlannerEvent,
)
from anchorwatch.core.session.state import Input

Journal = tuple[int, ...]
"""Numbers of records, in sequence order; sequences count from 1."""
Family = str | CallId
"""What a fence covers: `PLANNERS`, `ANCHOR`, an input's id, a command's whole family, or one register of it (`claim 1.1.1`)."""
PLANNERS, ANCHOR = "p", "p.anchor"


class Record(NamedTuple):
    """``previous``: for planner records, the sequence that its writer took for the last one (-1: it follows in one batch)."""

    register: str
    event: PlannerEvent | EffectEvent | str
    call: CallId | None = None
    previous: int = -1


_records: list[Record] = []
_numbers: dict[str, int] = {}


def number_of(record: Record) -> int:
    """The record's number; equal records have one. The anchor holds a dict, so equality goes by what it says of itself."""
    key = repr(record)
    number = _numbers.get(key)
    if number is None:
        number = _numbers[key] = len(_records)
        _records.append(record)
    return number


def record_at(journal: Journal, sequence: int) -> Record:
    return _records[journal[sequence - 1]]


def records(journal: Journal) -> Iterator[tuple[int, Record]]:
    """(sequence, record), in order."""
    return enumerate((_records[number] for number in journal), 1)


def covers(family: Family, record: Record) -> bool:
    """Whether a fence on ``family`` sees the record."""
    if isinstance(family, CallId):
        return record.call == family
    if family == PLANNERS:
        return record.register.startswith(PLANNERS)
    if family == ANCHOR:
        return record.register == ANCHOR
    return family == (f"{record.register} {record.call}" if record.call else record.event)


@lru_cache(maxsize=200_000)
def last_of(journal: Journal, family: Family) -> int:
    """The sequence of the family's last record; 0: there is none."""
    for sequence in range(len(journal), 0, -1):
        if covers(family, record_at(journal, sequence)):
            return sequence
    return 0


# --- what processes make of it: the real folds


def _event(sequence: int, record: Record) -> Event | None:
    if isinstance(record.event, str):
        return (
            InputAccepted(Input(sequence, record.event, "event", 1, 0)) if record.register == "in" else None
        )
    if isinstance(record.event, Outcome):
        done = record.event
        return OutcomeRecorded(done.call, done.state, done.text, done.data, done.durable)
    return record.event if record.call is None else None  # type: ignore[return-value]  # planners' registers hold theirs


@lru_cache(maxsize=400_000)
def session(journal: Journal) -> SessionState:
    """The session after all of this, every record of it read."""
    if not journal:
        return SessionState()
    return with_record(session(journal[:-1]), journal, len(journal)).reading_through(len(journal))


def with_record(state: SessionState, journal: Journal, sequence: int) -> SessionState:
    """The state with one more record folded in, not more complete by that."""
    event = _event(sequence, record_at(journal, sequence))
    return state if event is None else apply(state, Recorded(sequence, event, f"d{sequence}"))


@lru_cache(maxsize=400_000)
def session_known(journal: Journal, read: int, own: tuple[int, ...]) -> SessionState:
    """The session as a planner knows it that has read up to ``read``, and since then folded the records ``own``."""
    state = session(journal[:read])
    for sequence in own:
        state = with_record(state, journal, sequence)
    return state


@lru_cache(maxsize=400_000)
def effect(journal: Journal, call: CallId, through: int) -> EffectState:
    """A command's effect as of sequence ``through``."""
    state = EffectState()
    for sequence, record in records(journal[:through]):
        if record.call == call:
            state = apply_effect(state, sequence, 0, record.event)  # type: ignore[arg-type]  # its family holds effects
    return state


def forget() -> None:
    """Let go of what was remembered of journals."""
    for remembered in (last_of, session, session_known, effect):
        remembered.cache_clear()


def commands(journal: Journal) -> list[tuple[int, CommandDecided]]:
    """(sequence, command), in order."""
    return [(at, each.event) for at, each in records(journal) if isinstance(each.event, CommandDecided)]


def anchors(journal: Journal) -> list[tuple[int, AnchorChanged]]:
    """(sequence, change), in order."""
    return [(at, each.event) for at, each in records(journal) if isinstance(each.event, AnchorChanged)]


def fenced_at(journal: Journal, run: int) -> int:
    """Where the fence was raised above ``run``; 0: it was not."""
    return next((at for at, change in anchors(journal) if change.anchor.fence.run > run), 0)
