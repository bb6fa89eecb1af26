"""Schedules and their occurrences as records: what a register holds, and the input that an occurrence is."""

from __future__ import annotations

from typing import Any, TypeVar

from anchorwatch.bus.port import Stored
from anchorwatch.codec import decode
from anchorwatch.core.errors import Damaged
from anchorwatch.core.schedules.machine import Occurrence
from anchorwatch.core.schedules.schedule import (
    MISSED,
    OVERLAPS,
    STATES,
    Changed,
    Counts,
    Definition,
    Owed,
    Schedule,
)
from anchorwatch.core.schedules.zones import read_slot, slot_text
from anchorwatch.core.session.state import P1
from anchorwatch.core.session.wakes import SCHEDULE_SOURCE
from anchorwatch.journal.inputs import input_id
from anchorwatch.journal.mapping import input_body
from anchorwatch.topology.subjects import SCHEDULE

T = TypeVar("T")


def read_schedule(stored: Stored) -> Schedule:
    """The schedule in a message of its register.

    Raises:
        Damaged: it cannot be trusted.
    """
    tokens = SCHEDULE.parse(stored.subject) or {}
    record = decode(stored.payload)
    body = record.body
    try:
        definition = Definition(
            workspace=tokens["workspace"],
            name=tokens["name"],
            session=body["session"],
            cron=body["cron"],
            zone=body["zone"],
            text=body.get("text", ""),
            missed=_one_of(MISSED, body["missed"]),
            overlap=_one_of(OVERLAPS, body["overlap"]),
        )
        return Schedule(
            definition=definition,
            schedule_id=body["id"],
            state=_one_of(STATES, body["state"]),
            after=read_slot(body["after"]),
            changed=Changed(body["by"], body["changed_at_ms"], body.get("reason", "")),
            counts=Counts(*body["counts"]),
            last_slot=read_slot(body["last_slot"]) if "last_slot" in body else None,
            owed=_read_owed(*body["owed"]) if "owed" in body else None,
            sequence=stored.sequence,
        )
    except (KeyError, ValueError, TypeError) as error:
        raise Damaged(f"sequence {stored.sequence}: a field is missing or odd: {error!r}") from None


def _read_owed(slot: str, missed: int, first: str) -> Owed:
    return Owed(read_slot(slot), missed, read_slot(first))


def _one_of(known: tuple[T, ...], value: T) -> T:
    """As it is known.

    Raises:
        ValueError: it is not.
    """
    return known[known.index(value)]


def schedule_body(schedule: Schedule) -> dict[str, Any]:
    """The body of its record."""
    definition, counts = schedule.definition, schedule.counts
    body: dict[str, Any] = {
        "id": schedule.schedule_id,
        "session": definition.session,
        "cron": definition.cron,
        "zone": definition.zone,
        "missed": definition.missed,
        "overlap": definition.overlap,
        "state": schedule.state,
        "after": slot_text(schedule.after),
        "counts": [counts.made, counts.missed, counts.skipped],
        "by": schedule.changed.by,
        "changed_at_ms": schedule.changed.at_ms,
    }
    last = slot_text(schedule.last_slot) if schedule.last_slot else ""
    owed = schedule.owed and [
        slot_text(schedule.owed.slot),
        schedule.owed.missed,
        slot_text(schedule.owed.first),
    ]
    optional = {
        "text": definition.text,
        "last_slot": last,
        "owed": owed,
        "reason": schedule.changed.reason,
    }
    return body | {name: value for name, value in optional.items() if value}


def occurrence_id(schedule: Schedule, occurrence: Occurrence) -> str:
    """The id of an occurrence's input: of the schedule and the slot, so that no slot can be made twice."""
    return input_id("slot", schedule.schedule_id, slot_text(occurrence.slot))


def occurrence_body(schedule: Schedule, occurrence: Occurrence) -> dict[str, Any]:
    """The body of an occurrence's input."""
    definition, slot = schedule.definition, slot_text(occurrence.slot)
    data: dict[str, Any] = {"schedule": definition.name, "slot": slot, "zone": definition.zone}
    if occurrence.missed:
        data |= {"missed": occurrence.missed, "first": slot_text(occurrence.first)}
    return input_body(
        "tick",
        P1,
        text=told(definition, occurrence),
        source=SCHEDULE_SOURCE,
        type_=definition.name,
        data=data,
        settled=occurrence.settled,
        why=occurrence.why,
    )


def told(definition: Definition, occurrence: Occurrence) -> str:
    """The message to the session."""
    missed = f" (replaces {occurrence.missed} missed ones)" if occurrence.missed else ""
    said = f": {definition.text}" if definition.text else ""
    return f"{slot_text(occurrence.slot)} {definition.zone}{missed}{said}"
