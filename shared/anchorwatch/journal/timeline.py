"""The timeline: what happened, why, and on which facts. One entry for each record that a person can read.

Pure: from the record (and the anchor before it) alone, so memory's projection and a live stream agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anchorwatch.bus.port import Stored
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.errors import AnchorWatchError, BadInput
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind, Record
from anchorwatch.core.session.commands import CRITICAL_LINES
from anchorwatch.core.session.transitions import CONTROLS
from anchorwatch.core.times import iso
from anchorwatch.journal import sentences
from anchorwatch.journal.reading import ODD, Opened, open_record
from anchorwatch.journal.sentences import brief, clip
from anchorwatch.topology.subjects import Register, parse_register

DAMAGED = "damaged"
FACTS_MAX = 32
"""Facts in one entry."""
FACT_CHARS_MAX = 80
SAID_CHARS_MAX = 1_000
CHANGES = ("agent", "status", "objectives", "constraints", "constraint_rules", "next_check_at")
"""The fields of the anchor whose change by an order an entry shows."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a timeline. ``kind`` is the record's, or ``damaged``.

    ``ids`` names what it is about. ``details`` is the evidence, bounded:

    - ``facts``: what a decision was made on, by name; None is unknown. ``facts_omitted``: the number beyond `FACTS_MAX`.
    - ``data``, ``attributes``: an event's data, and the attributes of a CloudEvent, in one line each.
    - ``said``: of the end of a turn, the model's last words; the conversation has the whole of them.
    - ``changes``: what an order changed, ``{field: {"from", "to"}}``; without ``from`` the value before is unknown.
    """

    sequence: int
    at_ms: int
    workspace: str
    session: str
    kind: str
    what: str
    why: str = ""
    who: str = ""
    ids: Mapping[str, Any] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The entry for programs."""
        return {
            "sequence": self.sequence,
            "at": iso(self.at_ms),
            "session": self.session,
            "kind": self.kind,
            "what": self.what,
            "why": self.why,
            "who": self.who,
            **self.ids,
            **self.details,
        }


class Narrator:
    """Narrates the records of one session in order. It remembers the last anchor, to show what an order changed."""

    def __init__(self) -> None:
        self._anchor: Mapping[str, Any] | None = None

    def narrate(self, stored: Stored) -> Entry | None:
        """The entry of a journal message; None for a record that is for programs only (a snapshot, a planner wake-up).

        It never raises: the entry of a record that cannot be trusted says so.
        """
        try:
            opened = open_record(stored)
            before = self._anchor
            if opened.anchor is not None:
                self._anchor = opened.anchor.to_json()
            return entry_of(opened, before)
        except AnchorWatchError as error:
            return damaged(stored, error.message)
        except ODD as error:
            return damaged(stored, f"a field is missing or odd: {error!r}")


def entry_of(opened: Opened, before: Mapping[str, Any] | None = None) -> Entry | None:
    """As `Narrator.narrate`, of an opened record. ``before``: the anchor before it as JSON, if the caller knows it.

    Raises:
        one of `ODD`: a field is missing or has the wrong type.
    """
    stored, register, record, anchor = opened.stored, opened.register, opened.record, opened.anchor
    if anchor is not None:
        texts, ids = sentences.of_anchor(anchor, record), _ids_of_anchor(anchor)
    elif (found := sentences.of_record(record, register)) is not None:
        texts, ids = found, _ids(record, register)
    else:
        return None
    who, ref = str(record.body.get("by") or record.writer), register.ref
    details = _details(record, anchor, before)
    return Entry(
        stored.sequence, record.at_ms, ref.workspace, ref.session, record.kind, *texts, who, ids, details
    )


def damaged(stored: Stored, why: str) -> Entry:
    """The entry of a record that cannot be trusted."""
    try:
        ref = parse_register(stored.subject).ref
    except BadInput:
        ref = SessionRef("", "")
    what = f"record {stored.sequence} is damaged"
    # An error may quote the record, and its bytes need not be valid text.
    why = clip(why.encode(errors="replace").decode())
    return Entry(stored.sequence, stored.time_ms, ref.workspace, ref.session, DAMAGED, what, why)


def _details(record: Record, anchor: Anchor | None, before: Mapping[str, Any] | None) -> dict[str, Any]:
    body = record.body
    if record.kind == Kind.INPUT:
        return {name: brief(body[name]) for name in ("data", "attributes") if body.get(name) is not None}
    if anchor is not None and record.kind in CONTROLS and record.kind != Kind.CREATED:
        return _changes(anchor, record, before)
    head = body.get("head" if record.kind == Kind.COMMAND else "step")
    if not isinstance(head, Mapping):
        return {}
    seen, text = head.get("observation"), head.get("text")
    said = {"said": clip(text, SAID_CHARS_MAX)} if text and record.kind == Kind.TURN_ENDED else {}
    facts = _facts(seen["facts"]) if isinstance(seen, Mapping) and seen.get("facts") else {}
    return {**said, **facts}


def _facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    shown = {str(name): _fact(value) for name, value in list(facts.items())[:FACTS_MAX]}
    omitted = len(facts) - len(shown)
    return {"facts": shown, **({"facts_omitted": omitted} if omitted else {})}


def _fact(value: object) -> object:
    plain = (
        value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value))
    )
    return value if plain else clip(value, FACT_CHARS_MAX)


def _changes(anchor: Anchor, record: Record, before: Mapping[str, Any] | None) -> dict[str, Any]:
    after = anchor.to_json()
    if record.body.get("which") == CRITICAL_LINES:
        old, new = record.body["line"], record.body.get("text")
        return {"changes": {CRITICAL_LINES: {"from": _bounded(old), "to": _bounded(new)}}}
    if before is not None:
        changed = [name for name in CHANGES if before.get(name) != after[name]]
        changes = {
            name: {"from": _bounded(before.get(name)), "to": _bounded(after[name])} for name in changed
        }
    else:
        # A change of directives names its field. Every other change needs the anchor before it.
        changed = [name for name in CHANGES if name == record.body.get("which")]
        changes = {name: {"to": _bounded(after[name])} for name in changed}
    return {"changes": changes} if changes else {}


def _bounded(value: object) -> object:
    if isinstance(value, list):
        return [clip(each) for each in value]
    if isinstance(value, Mapping):
        return [clip(f"{name}: {each}") for name, each in value.items()]
    return clip(value) if isinstance(value, str) else value


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
        case Kind.STEP | Kind.MODEL_REQUEST:
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
