"""What happened, in sentences: one entry for each journal record that a person can read.

Pure: from the record alone, so that whoever reads the journal (memory's projection, a live stream) tells the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anchorwatch.bus.port import Stored
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.errors import AnchorWatchError, BadInput
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind, Record
from anchorwatch.core.times import iso
from anchorwatch.journal import sentences
from anchorwatch.journal.opened import ODD, Opened, open_record
from anchorwatch.journal.sentences import clip
from anchorwatch.topology.subjects import Register, parse_register

DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a timeline. ``kind`` is the record's, or ``damaged``; ``ids`` names what it is about."""

    sequence: int
    at_ms: int
    workspace: str
    session: str
    kind: str
    what: str
    why: str = ""
    who: str = ""
    ids: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The entry as programs get it."""
        return {
            "sequence": self.sequence,
            "at": iso(self.at_ms),
            "session": self.session,
            "kind": self.kind,
            "what": self.what,
            "why": self.why,
            "who": self.who,
            **self.ids,
        }


def narrate(stored: Stored) -> Entry | None:
    """The entry of a journal message; None where it holds nothing that a person would read (a snapshot, a wake of planners).

    It never raises: a record that cannot be trusted is told as damaged.
    """
    try:
        return tell(open_record(stored))
    except AnchorWatchError as error:
        return damaged(stored, error.message)
    except ODD as error:
        return damaged(stored, f"a field is missing or odd: {error!r}")


def tell(opened: Opened) -> Entry | None:
    """As `narrate`, of a record that was read already.

    Raises:
        one of `ODD`: a field is missing, or of another type than it must be.
    """
    stored, register, record, anchor = opened.stored, opened.register, opened.record, opened.anchor
    if anchor is not None:
        said, ids = sentences.of_anchor(anchor, record), _ids_of_anchor(anchor)
    elif (found := sentences.of_record(record, register)) is not None:
        said, ids = found, _ids(record, register)
    else:
        return None
    who, ref = str(record.body.get("by") or record.writer), register.ref
    return Entry(stored.sequence, record.at_ms, ref.workspace, ref.session, record.kind, *said, who, ids)


def damaged(stored: Stored, why: str) -> Entry:
    """The entry of a record that cannot be trusted."""
    try:
        ref = parse_register(stored.subject).ref
    except BadInput:
        ref = SessionRef("", "")
    what = f"the record at {stored.sequence} cannot be trusted"
    # An error may quote what stood in the record, and that need not be text.
    why = clip(why.encode(errors="replace").decode())
    return Entry(stored.sequence, stored.time_ms, ref.workspace, ref.session, DAMAGED, what, why)


def _ids_of_anchor(anchor: Anchor) -> dict[str, Any]:
    ids: dict[str, Any] = {"generation": anchor.generation}
    if anchor.run_id:
        ids["run_id"] = anchor.run_id
    if anchor.turn is not None:
        ids["turn_id"] = anchor.turn.id
    return ids


def _ids(record: Record, register: Register) -> dict[str, Any]:
    body = record.body
    match record.kind:
        case Kind.INPUT:
            return {"input_id": register.path[1]}
        case Kind.COMMAND:
            call = f"{register.ref.session}/{body['run']}.{body['step']}.{body['n']}"
            return {"run_id": body["run"], "turn_id": body["turn"], "call": call}
        case Kind.COMPACTION:
            return {"through_run": body["summary"]["through_run"]}
        case Kind.STEP:
            return {"run_id": body["run"]}
        case _:
            return _ids_of_path(register)


def _ids_of_path(register: Register) -> dict[str, Any]:
    match register.path[0]:
        case "fx" | "late":
            call = register.call
            return {"run_id": call.run, "call": f"{register.ref.session}/{call}"}
        case "art":
            return {"artifact_id": register.path[1]}
        case "sent":
            return {"delivery_id": register.path[1]}
        case _:
            return {}
