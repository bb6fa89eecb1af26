"""Schedules: made, paused, resumed and deleted by people; shown with what comes next."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from datetime import tzinfo
from typing import Any, Literal

from anchorwatch.bus.port import Stored
from anchorwatch.codec import canonical_json, sha256_hex
from anchorwatch.core.errors import BadInput, Damaged
from anchorwatch.core.names import SessionRef, check_name
from anchorwatch.core.schedules import machine
from anchorwatch.core.schedules.cron import Cron
from anchorwatch.core.schedules.schedule import Changed, Definition, Schedule
from anchorwatch.core.schedules.zones import instant_of, shown, slot_text
from anchorwatch.core.schedules.zones import reached as reached_slot
from anchorwatch.core.times import iso
from anchorwatch.edges import Edge, reached
from anchorwatch.journal.inputs import input_id
from anchorwatch.journal.orders import Asked
from anchorwatch.journal.schedule_records import read_schedule
from anchorwatch.topology.subjects import SCHEDULE
from anchorwatch.zones import zone_asked, zone_of

from anchorwatch_gateway.bodies import NewSchedule
from anchorwatch_gateway.caller import by
from anchorwatch_gateway.parts import Parts
from anchorwatch_gateway.sessions import find, find_living

NEXT_SHOWN = 5
Verb = Literal["create", "pause", "resume", "delete"]


async def listed(parts: Parts, workspace: str, session: str | None) -> list[dict[str, Any]]:
    """The schedules of the workspace, or of one session; those that were deleted are left out.

    Raises:
        BadInput, NotFound: there is no such session. Unavailable.
    """
    if session is not None:
        await find(parts, SessionRef(workspace, check_name(session, "session name")))
    found = [_row(parts, stored) for stored in await parts.schedules.standing(workspace)]
    return [row for row in found if row["state"] != "deleted" and session in (None, row["session"])]


async def shown_one(parts: Parts, workspace: str, name: str) -> dict[str, Any]:
    """One schedule.

    Raises:
        NotFound, Damaged, Unavailable.
    """
    return _show(parts, await parts.schedules.find(workspace, name))


async def create(
    parts: Parts, workspace: str, wish: NewSchedule, key: str | None, body: object
) -> tuple[dict[str, Any], str]:
    """Make a schedule; returns (it, the request's key).

    Raises:
        BadInput: cron or zone say nothing. NotFound: there is no such session. SessionDeleted. Conflict: the name is taken.
        IdempotencyConflict, Fenced, Unavailable, Refused.
    """
    cron, zone = Cron.asked(wish.cron), zone_asked(wish.zone)
    asked, key = _asked(workspace, "create", wish.name, key, body)
    return await _shared(parts, asked, key, lambda: _create(parts, workspace, wish, (cron, zone), asked))


async def _create(
    parts: Parts, workspace: str, wish: NewSchedule, timing: tuple[Cron, tzinfo], asked: Asked
) -> tuple[Schedule, bool]:
    cron, zone = timing
    if not await parts.schedules.was_ordered(workspace, asked):
        await find_living(parts, SessionRef(workspace, wish.session))
    given = wish.model_dump(exclude={"cron"})
    definition = Definition(workspace=workspace, cron=cron.expression, **given)
    reached(Edge.GATEWAY_SCHEDULE_BEFORE)
    made = await parts.schedules.make(definition, zone, asked, parts.clock.now_ms(), parts.commit_deadline_s)
    reached(Edge.GATEWAY_SCHEDULE_AFTER)
    return made


async def order(
    parts: Parts,
    workspace: str,
    verb: Literal["pause", "resume", "delete"],
    name: str,
    reason: str,
    key: str | None,
) -> tuple[dict[str, Any], str]:
    """Change a schedule; returns (it, the request's key).

    Raises:
        NotFound: there is none of that name. Refused: it is so already, or over. IdempotencyConflict, Fenced, Unavailable.
    """
    asked, key = _asked(workspace, verb, name, key, {"reason": reason})

    async def carry_out() -> tuple[Schedule, bool]:
        now_ms = parts.clock.now_ms()
        change = _change(verb, Changed(asked.by, now_ms, reason))
        reached(Edge.GATEWAY_SCHEDULE_BEFORE)
        ordered = await parts.schedules.order(workspace, name, asked, now_ms, change, parts.commit_deadline_s)
        reached(Edge.GATEWAY_SCHEDULE_AFTER)
        return ordered

    return await _shared(parts, asked, key, carry_out)


async def _shared(
    parts: Parts, asked: Asked, key: str, do: Callable[[], Awaitable[tuple[Schedule, bool]]]
) -> tuple[dict[str, Any], str]:
    """What was ordered, by this request or by the same one that is under way."""
    (schedule, replayed), joined = await parts.under_way.share((asked.control_id, asked.body_sha256), do)
    return _told(parts, schedule, key, replayed=replayed or joined), key


def _change(verb: Literal["pause", "resume", "delete"], changed: Changed) -> Callable[[Schedule], Schedule]:
    def change(schedule: Schedule) -> Schedule:
        cron, zone = Cron(schedule.definition.cron), zone_of(schedule.definition.zone)
        match verb:
            case "pause":
                return machine.pause(schedule, cron, zone, changed)
            case "resume":
                return machine.resume(schedule, zone, changed)
            case "delete":
                return machine.delete(schedule, cron, zone, changed)

    return change


def _asked(workspace: str, verb: Verb, name: str, key: str | None, body: object) -> tuple[Asked, str]:
    key = key or secrets.token_urlsafe(18)
    meant = {"verb": verb, "name": name, "body": body}
    control_id = input_id("c", workspace, "schedule", key)
    return Asked(control_id, by(), sha256_hex(canonical_json(meant))), key


def _told(parts: Parts, schedule: Schedule, key: str, *, replayed: bool) -> dict[str, Any]:
    return {**_show(parts, schedule), "replayed": replayed, "idempotency_key": key}


def _row(parts: Parts, stored: Stored) -> dict[str, Any]:
    try:
        return _show(parts, read_schedule(stored))
    except (Damaged, BadInput) as damage:
        name = (SCHEDULE.parse(stored.subject) or {}).get("name", "")
        return {"name": name, "session": None, "state": "damaged", "reason": damage.message, "next": []}


def _show(parts: Parts, schedule: Schedule) -> dict[str, Any]:
    definition, counts = schedule.definition, schedule.counts
    return {
        "name": definition.name,
        "session": definition.session,
        "cron": definition.cron,
        "zone": definition.zone,
        "text": definition.text,
        "missed": definition.missed,
        "overlap": definition.overlap,
        "state": schedule.state,
        "next": _next(schedule, parts.clock.now_ms()),
        "owed": _owed(schedule),
        "last_slot": slot_text(schedule.last_slot) if schedule.last_slot else None,
        "counts": {"made": counts.made, "missed": counts.missed, "skipped": counts.skipped},
        "by": schedule.changed.by,
        "at": iso(schedule.changed.at_ms),
        "reason": schedule.changed.reason,
        "sequence": schedule.sequence,
    }


def _owed(schedule: Schedule) -> dict[str, Any] | None:
    """The occurrence that came before a pause, and that is still to be seen to."""
    owed = schedule.owed
    if owed is None:
        return None
    zone = zone_of(schedule.definition.zone)
    return {
        "slot": slot_text(owed.slot),
        "at": shown(instant_of(owed.slot, zone), zone),
        "missed": owed.missed,
    }


def _next(schedule: Schedule, now_ms: int) -> list[dict[str, str]]:
    """What comes next; of a schedule that is paused, what would come if it were resumed now."""
    if not schedule.living:
        return []
    zone = zone_of(schedule.definition.zone)
    after = schedule.after if schedule.state == "active" else max(schedule.after, reached_slot(now_ms, zone))
    found = machine.upcoming(Cron(schedule.definition.cron), zone, after, NEXT_SHOWN)
    return [{"slot": slot_text(slot), "at": shown(at_ms, zone)} for slot, at_ms in found]
