"""Reads and checks one record of a session by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from anchorwatch.bus.port import Stored
from anchorwatch.codec import read_body, sha256_hex
from anchorwatch.core.errors import AnchorWatchError, NewerSchema
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.journal.artifacts import Kept, artifact_id
from anchorwatch.journal.deliveries import read_delivery
from anchorwatch.journal.integrity.findings import Finding, Trouble
from anchorwatch.journal.late import LateOutcome
from anchorwatch.journal.mapping import read_session_record
from anchorwatch.journal.reading import ODD, Opened, open_record
from anchorwatch.topology.subjects import Register

WHAT_CHARS_MAX: Final = 300
PREFIX_TOKENS: Final = 5
_KINDS: Final[Mapping[str, frozenset[str]]] = {
    "in": frozenset({Kind.INPUT}),
    "p.log": frozenset({Kind.STEP, Kind.SNAPSHOT, Kind.COMPACTION, Kind.MODEL_REQUEST}),
    "p.cmd": frozenset({Kind.COMMAND}),
    "fx.gate": frozenset({Kind.GATE_ASKED, Kind.GATE_DECIDED}),
    "fx.claim": frozenset({Kind.CLAIM, Kind.RELEASE}),
    "fx.done": frozenset({Kind.OUTCOME}),
    "ctl": frozenset({Kind.CONTROL}),
    "late": frozenset({Kind.LATE}),
    "art": frozenset({Kind.ARTIFACT}),
    "sent": frozenset({Kind.DELIVERY_CLAIMED, Kind.DELIVERY}),
}


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a message: its register within the session, and the kind of the register."""

    stored: Stored
    path: tuple[str, ...]
    kind: str

    @property
    def sequence(self) -> int:
        return self.stored.sequence

    def finding(self, trouble: Trouble, what: str) -> Finding:
        """A finding at this place."""
        # An error may quote bytes of the record that are not valid text.
        what = what.encode(errors="replace").decode()[:WHAT_CHARS_MAX]
        digest = sha256_hex(self.stored.payload)
        return Finding(self.sequence, ".".join(self.path), self.kind, trouble, what, sha256=digest)


def place_of(ref: SessionRef, stored: Stored) -> Place:
    """The place of a message of this session, also with an invalid register."""
    path = tuple(stored.subject.split(".")[PREFIX_TOKENS:])
    try:
        return Place(stored, path, Register(ref, path).kind)
    except IndexError:
        return Place(stored, path, "")


def read(ref: SessionRef, place: Place) -> Opened | Finding:
    """The record after checks of its digest, versions and fields, or a finding."""
    try:
        opened = open_record(place.stored)
        read_session_record(place.stored)
        wrong = _misplaced(ref, place.kind, opened)
        if wrong:
            return place.finding("misplaced", wrong)
        check = _CHECKS.get(place.kind)
        if check is not None:
            check(opened)
    except NewerSchema as error:
        return place.finding("newer", error.message)
    except AnchorWatchError as error:
        return place.finding("unreadable", error.message)
    except ODD as error:
        return place.finding("unreadable", f"a field is missing or odd: {error!r}")
    return opened


def _misplaced(ref: SessionRef, kind: str, opened: Opened) -> str:
    anchor = opened.anchor
    if anchor is None:
        fits = opened.record.kind in _KINDS.get(kind, frozenset())
        return (
            "" if fits else f"a record of kind {opened.record.kind[:40]!r} does not belong in this register"
        )
    if (anchor.workspace, anchor.session) != (ref.workspace, ref.session):
        return f"it is the anchor of {anchor.workspace[:80]}/{anchor.session[:80]}"
    return ""


def _check_artifact(opened: Opened) -> None:
    kept = Kept.from_body(opened.register.path[1], opened.record.body)
    if artifact_id(kept.provenance.maker, kept.name, kept.sha256) != kept.artifact_id:
        raise ValueError("its id does not match its content")


_CHECKS: Final[Mapping[str, Callable[[Opened], object]]] = {
    "art": _check_artifact,
    "late": lambda opened: read_body(opened.record.body, LateOutcome),
    "sent": lambda opened: read_delivery(opened.record.body),
}
