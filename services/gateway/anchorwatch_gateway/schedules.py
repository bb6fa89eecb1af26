"""Schedules: create, list, show, pause, resume and delete them."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from datetime import tzinfo
from typing import Annotated, Literal

from anchorwatch.bus.port import Stored
from anchorwatch.codec import canonical_json, sha256_hex
from anchorwatch.core.agents import Name
from anchorwatch.core.errors import BadInput, Damaged
from anchorwatch.core.names import SessionRef, check_name
from anchorwatch.core.schedules import machine
from anchorwatch.core.schedules.cron import Cron
from anchorwatch.core.schedules.schedule import Changed, Definition, Missed, Overlap, Schedule, ScheduleState
from anchorwatch.core.schedules.zones import instant_of, shown, slot_text
from anchorwatch.core.schedules.zones import reached as reached_slot
from anchorwatch.core.times import iso
from anchorwatch.edges import Edge, reached
from anchorwatch.journal.inputs import input_id
from anchorwatch.journal.orders import Asked
from anchorwatch.journal.schedule_records import read_schedule
from anchorwatch.topology.subjects import SCHEDULE
from anchorwatch.zones import zone_asked, zone_of
from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, Field

from anchorwatch_gateway.errors import CONFLICT
from anchorwatch_gateway.guard import by
from anchorwatch_gateway.parts import Parts
from anchorwatch_gateway.requests import (
    KEY_HEADER,
    Body,
    Key,
    Page,
    PartsDep,
    Reason,
    WindowDep,
    WorkspaceDep,
    page_of,
    sent_json,
)
from anchorwatch_gateway.sessions import find, find_living

router = APIRouter(prefix="/api/schedules", tags=["schedules"])

NEXT_SHOWN = 5
Verb = Literal["pause", "resume", "delete"]


class NewSchedule(Body):
    """A schedule to create: when, which session, and the text of its input."""

    name: Name
    session: Name
    cron: str = Field(max_length=200, description="five fields: minute hour day-of-month month day-of-week")
    zone: str = Field("UTC", max_length=64, description="a time zone, such as Europe/Berlin")
    text: str = Field("", max_length=8_000, description="the text of each occurrence's input")
    missed: Missed = Field("one", description="after downtime, run one occurrence, or skip all missed ones")
    overlap: Overlap = Field("skip", description="during a turn, skip the occurrence, or queue one")


class Occurrence(BaseModel):
    """``slot``: the local time of the cron expression. ``at``: the instant, in the schedule's zone."""

    slot: str
    at: str


class OwedOccurrence(Occurrence):
    """An occurrence that came before a pause and still has to run. ``missed``: how many earlier ones it replaces."""

    missed: int


class SlotCounts(BaseModel):
    """Occurrences so far: ``made`` inputs, ``missed`` during downtime, ``skipped`` because of a turn."""

    made: int
    missed: int
    skipped: int


class ScheduleInfo(BaseModel):
    """A schedule with its next occurrences."""

    name: str
    session: str
    cron: str
    zone: str
    text: str
    missed: Missed
    overlap: Overlap
    state: ScheduleState
    next: list[Occurrence] = Field(description="of a paused schedule: as if it were resumed now")
    owed: OwedOccurrence | None
    last_slot: str | None
    counts: SlotCounts
    by: str = Field(description="who changed it last")
    at: str
    reason: str
    sequence: int


class DamagedSchedule(BaseModel):
    """A schedule with a record that cannot be read."""

    name: str
    session: None
    state: Literal["damaged"]
    reason: str
    next: list[Occurrence]


class ChangedSchedule(ScheduleInfo):
    """A schedule after an order."""

    replayed: bool = Field(description="true: an earlier request under this key was carried out")
    idempotency_key: str


async def get_name(name: Annotated[str, Path(description="the schedule's name")]) -> str:
    return check_name(name, "schedule name")


NameDep = Annotated[str, Depends(get_name)]

# ---------------------------------------------------------------- routes


@router.get("")
async def list_schedules(
    parts: PartsDep,
    workspace: WorkspaceDep,
    window: WindowDep,
    session: Annotated[str | None, Query(description="only of this session")] = None,
) -> Page[ScheduleInfo | DamagedSchedule]:
    """List the schedules by name, each with its next five occurrences. Deleted ones are left out."""
    if session is not None:
        await find(parts, SessionRef(workspace, check_name(session, "session name")))
    found = [_row(parts, stored) for stored in await parts.schedules.standing(workspace)]
    rows = [row for row in found if row.state != "deleted" and session in (None, row.session)]
    return page_of(rows, window, lambda row: row.name)


@router.get("/{name}")
async def get_schedule(parts: PartsDep, workspace: WorkspaceDep, name: NameDep) -> ScheduleInfo:
    """Show a schedule with its next five occurrences."""
    return _info(parts, await parts.schedules.find(workspace, name))


@router.post("", status_code=201, responses=CONFLICT)
async def create_schedule(
    body: NewSchedule,
    parts: PartsDep,
    workspace: WorkspaceDep,
    request: Request,
    response: Response,
    key: Key = None,
) -> ChangedSchedule:
    """Create a schedule: each occurrence wakes its session with the text."""
    cron, zone = Cron.asked(body.cron), zone_asked(body.zone)
    order = _order(workspace, "create", body.name, key, sent_json(request))
    return await _respond(
        parts, response, order, lambda: _create(parts, workspace, body, (cron, zone), order.asked)
    )


@router.post("/{name}/pause", responses=CONFLICT)
async def pause_schedule(
    parts: PartsDep,
    workspace: WorkspaceDep,
    name: NameDep,
    response: Response,
    body: Reason | None = None,
    key: Key = None,
) -> ChangedSchedule:
    """Pause the schedule: no occurrences until it is resumed."""
    return await _change(parts, workspace, response, "pause", name, body.reason if body else "", key)


@router.post("/{name}/resume", responses=CONFLICT)
async def resume_schedule(
    parts: PartsDep,
    workspace: WorkspaceDep,
    name: NameDep,
    response: Response,
    body: Reason | None = None,
    key: Key = None,
) -> ChangedSchedule:
    """Resume the schedule. Occurrences during the pause are not made up for."""
    return await _change(parts, workspace, response, "resume", name, body.reason if body else "", key)


@router.delete("/{name}", responses=CONFLICT)
async def delete_schedule(
    parts: PartsDep,
    workspace: WorkspaceDep,
    name: NameDep,
    response: Response,
    reason: Annotated[str, Query(max_length=500)] = "",
    key: Key = None,
) -> ChangedSchedule:
    """Delete the schedule. An occurrence that is already pending still runs."""
    return await _change(parts, workspace, response, "delete", name, reason, key)


# ---------------------------------------------------------------- orders


class _Order:
    """An order under its idempotency key."""

    def __init__(self, asked: Asked, key: str) -> None:
        self.asked = asked
        self.key = key


def _order(
    workspace: str, verb: Literal["create"] | Verb, name: str, key: str | None, body: object
) -> _Order:
    key = key or secrets.token_urlsafe(18)
    control_id = input_id("c", workspace, "schedule", key)
    digest = sha256_hex(canonical_json({"verb": verb, "name": name, "body": body}))
    return _Order(Asked(control_id, by(), digest), key)


async def _respond(
    parts: Parts, response: Response, order: _Order, do: Callable[[], Awaitable[tuple[Schedule, bool]]]
) -> ChangedSchedule:
    """What ``do`` makes of the schedule, or what an identical request in flight does. Raises what ``do`` raises."""
    asked = order.asked
    (schedule, replayed), joined = await parts.in_flight.run((asked.control_id, asked.body_sha256), do)
    response.headers[KEY_HEADER] = order.key
    info = _info(parts, schedule)
    return ChangedSchedule(**dict(info), replayed=replayed or joined, idempotency_key=order.key)


async def _create(
    parts: Parts, workspace: str, wanted: NewSchedule, timing: tuple[Cron, tzinfo], asked: Asked
) -> tuple[Schedule, bool]:
    """Raises NotFound, SessionDeleted, Conflict, IdempotencyConflict, Fenced, Unavailable, Refused."""
    cron, zone = timing
    if not await parts.schedules.was_ordered(workspace, asked):
        await find_living(parts, SessionRef(workspace, wanted.session))
    definition = Definition(workspace=workspace, cron=cron.expression, **wanted.model_dump(exclude={"cron"}))
    reached(Edge.GATEWAY_SCHEDULE_BEFORE)
    made = await parts.schedules.make(definition, zone, asked, parts.clock.now_ms(), parts.commit_deadline_s)
    reached(Edge.GATEWAY_SCHEDULE_AFTER)
    return made


async def _change(
    parts: Parts,
    workspace: str,
    response: Response,
    verb: Verb,
    name: str,
    reason: str,
    key: str | None,
) -> ChangedSchedule:
    """Raises NotFound, Refused, IdempotencyConflict, Fenced, Unavailable."""
    order = _order(workspace, verb, name, key, {"reason": reason})
    asked = order.asked

    async def carry_out() -> tuple[Schedule, bool]:
        now_ms = parts.clock.now_ms()
        changed = Changed(asked.by, now_ms, reason)
        reached(Edge.GATEWAY_SCHEDULE_BEFORE)
        ordered = await parts.schedules.order(
            workspace,
            name,
            asked,
            now_ms,
            lambda schedule: _changed(schedule, verb, changed),
            parts.commit_deadline_s,
        )
        reached(Edge.GATEWAY_SCHEDULE_AFTER)
        return ordered

    return await _respond(parts, response, order, carry_out)


def _changed(schedule: Schedule, verb: Verb, changed: Changed) -> Schedule:
    cron, zone = Cron(schedule.definition.cron), zone_of(schedule.definition.zone)
    match verb:
        case "pause":
            return machine.pause(schedule, cron, zone, changed)
        case "resume":
            return machine.resume(schedule, zone, changed)
        case "delete":
            return machine.delete(schedule, cron, zone, changed)


# ---------------------------------------------------------------- rows


def _row(parts: Parts, stored: Stored) -> ScheduleInfo | DamagedSchedule:
    try:
        return _info(parts, read_schedule(stored))
    except (Damaged, BadInput) as damage:
        name = (SCHEDULE.parse(stored.subject) or {}).get("name", "")
        return DamagedSchedule(name=name, session=None, state="damaged", reason=damage.message, next=[])


def _info(parts: Parts, schedule: Schedule) -> ScheduleInfo:
    definition, counts = schedule.definition, schedule.counts
    return ScheduleInfo(
        name=definition.name,
        session=definition.session,
        cron=definition.cron,
        zone=definition.zone,
        text=definition.text,
        missed=definition.missed,
        overlap=definition.overlap,
        state=schedule.state,
        next=_next(schedule, parts.clock.now_ms()),
        owed=_owed(schedule),
        last_slot=slot_text(schedule.last_slot) if schedule.last_slot else None,
        counts=SlotCounts(made=counts.made, missed=counts.missed, skipped=counts.skipped),
        by=schedule.changed.by,
        at=iso(schedule.changed.at_ms),
        reason=schedule.changed.reason,
        sequence=schedule.sequence,
    )


def _owed(schedule: Schedule) -> OwedOccurrence | None:
    owed = schedule.owed
    if owed is None:
        return None
    zone = zone_of(schedule.definition.zone)
    return OwedOccurrence(
        slot=slot_text(owed.slot), at=shown(instant_of(owed.slot, zone), zone), missed=owed.missed
    )


def _next(schedule: Schedule, now_ms: int) -> list[Occurrence]:
    if not schedule.living:
        return []
    zone = zone_of(schedule.definition.zone)
    after = schedule.after if schedule.state == "active" else max(schedule.after, reached_slot(now_ms, zone))
    found = machine.upcoming(Cron(schedule.definition.cron), zone, after, NEXT_SHOWN)
    return [Occurrence(slot=slot_text(slot), at=shown(at_ms, zone)) for slot, at_ms in found]
