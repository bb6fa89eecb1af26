"""The doctor's checks of wake-ups: sessions without a scheduled wake-up, and overdue schedules.

Planners find such sessions at their start and at each sweep, so a finding here means that no planner does. Each finding is
checked twice, since a wake-up timer is set a moment after the anchor that requires it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anchorwatch.bus.port import Bus, Stored
from anchorwatch.cli.checks import Check, as_verbs_take_it, failed, named, note, passed, session
from anchorwatch.cli.render import many
from anchorwatch.codec import decode_anchor
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.errors import AnchorWatchError, Damaged, NotFound
from anchorwatch.core.names import SessionRef
from anchorwatch.core.schedules import machine
from anchorwatch.core.schedules.cron import Cron
from anchorwatch.core.schedules.zones import instant_of, slot_text
from anchorwatch.core.times import from_iso
from anchorwatch.journal.heads import last_anchor
from anchorwatch.journal.schedule_records import read_schedule
from anchorwatch.journal.switches import first_on, subjects_of
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.topology.streams import ANCHORS_BUCKET, TICKS, journal_stream
from anchorwatch.topology.subjects import SCHEDULE, SessionSubjects
from anchorwatch.zones import zone_of

LATE_MS_MAX = 60_000
"""A wake-up is overdue after this time: a planner handles it at once, and a sweep a few times a minute."""
AHEAD_MS_MAX = 2 * 3_600_000
"""The tolerated clock error of a schedule: an hour set back is tolerated, days ahead are not."""
RECHECK_S = 2.0
RUNNING = "check `anchorwatch status` for a ready planner; `anchorwatch doctor --fix` wakes each session now"


@dataclass(frozen=True, slots=True)
class Neglected:
    """A session without a scheduled wake-up, and the reason."""

    ref: SessionRef
    why: str


def neglect(anchor: Anchor, timer_ms: int | None, heartbeat_s: float | None, now_ms: int) -> str:
    """Why a session is not woken in time; empty if it is.

    ``timer_ms``: the time of its wake-up timer in `TICKS`, if it is set. ``heartbeat_s``: that of its agent; None is that of the
    services, which is unknown here.
    """
    if anchor.status != "idle":
        return ""
    if anchor.next_check_at is None:
        return "it has no next check"
    check_ms = from_iso(anchor.next_check_at)
    if heartbeat_s is not None and check_ms > now_ms + heartbeat_s * 1000 + LATE_MS_MAX:
        return f"its next check, {anchor.next_check_at}, is later than its heartbeat"
    fires = timer_ms is not None and timer_ms > now_ms - LATE_MS_MAX
    if check_ms < now_ms - LATE_MS_MAX and not fires:
        return f"its check of {anchor.next_check_at} is overdue"
    if check_ms > now_ms and timer_ms is None:
        return "its wake-up timer is not set"
    return ""


async def examine(bus: Bus) -> tuple[list[Check], list[Neglected]]:
    """Check every session and every schedule.

    Raises:
        Unavailable.
    """
    directory = await AgentDirectory.open(bus)
    view = await bus.bucket(ANCHORS_BUCKET)
    refs = [SessionRef(*key.split(".", 1)) for key in await view.keys()]
    found = await _neglected(bus, directory, refs)
    late = await _late_schedules(bus, refs)
    if found or late:
        await asyncio.sleep(RECHECK_S)
        found = await _neglected(bus, directory, [each.ref for each in found])
        late = await _late_schedules(bus, refs) if late else []
    return [_sessions(len(refs), found), _schedules(late)], found


async def wake(data_dir: Path | None, neglected: Sequence[Neglected]) -> Check:
    """Request a turn of each session through the API: the end of the turn sets the next check."""
    from anchorwatch.cli.target import open_api

    woken = []
    try:
        for each in neglected:
            with open_api(data_dir, None, None, workspace=each.ref.workspace) as api:
                trigger = {"reason": f"the doctor found no scheduled wake-up: {each.why}"}
                api.post(f"/api/sessions/{each.ref.session}/trigger", trigger)
            woken.append(session(each.ref))
    except AnchorWatchError as error:
        return failed("fixed", f"{len(woken)} of {len(neglected)} sessions: {error.message}", error.hint)
    return note("fixed", f"requested a turn of {named(woken)}")


def _sessions(known: int, found: Sequence[Neglected]) -> Check:
    if not found:
        return passed("wakes", f"{many(known, 'session')}, each with a scheduled wake-up or held by a person")
    return failed("wakes", named([f"{session(each.ref)}: {each.why}" for each in found]), RUNNING)


def _schedules(late: Sequence[str]) -> Check:
    if not late:
        return passed("schedules", "no overdue schedules")
    return failed("schedules", named(late), "check `anchorwatch status` for a ready planner, and its log")


async def _neglected(bus: Bus, directory: AgentDirectory, refs: Sequence[SessionRef]) -> list[Neglected]:
    found = []
    for ref in refs:
        try:
            last = await last_anchor(bus, journal_stream(), ref)
            if last is None:
                continue
            anchor, _ = decode_anchor(last.payload)
        except Damaged:
            # The check of sessions reports a quarantined session.
            continue
        why = neglect(
            anchor,
            await _timer_ms(bus, ref),
            await _heartbeat_s(directory, anchor),
            await bus.server_time_ms(),
        )
        if why and not await _is_held(bus, ref, anchor):
            found.append(Neglected(ref, why))
    return found


async def _timer_ms(bus: Bus, ref: SessionRef) -> int | None:
    page = await bus.last(TICKS, [SessionSubjects(ref).tick_schedule])
    return int(json.loads(page.messages[0].payload)["at_ms"]) if page.messages else None


async def _heartbeat_s(directory: AgentDirectory, anchor: Anchor) -> float | None:
    try:
        agent = await directory.get(anchor.workspace, anchor.agent.partition("@")[0])
    except (NotFound, Damaged):
        return None
    return agent.heartbeat_s


async def _is_held(bus: Bus, ref: SessionRef, anchor: Anchor) -> bool:
    """Whether a kill switch holds the session."""
    page = await bus.last(journal_stream(), subjects_of(ref, anchor.agent))
    return first_on(page.messages) is not None


async def _late_schedules(bus: Bus, refs: Sequence[SessionRef]) -> list[str]:
    now_ms = await bus.server_time_ms()
    found = []
    for workspace in sorted({ref.workspace for ref in refs}):
        page = await bus.last(journal_stream(), [SCHEDULE.filter(workspace=workspace)])
        found += [why for stored in page.messages if (why := lateness(stored, now_ms))]
    return found


def lateness(stored: Stored, now_ms: int) -> str:
    """Why the schedule in a message of its register is late; empty if it is not."""
    try:
        schedule = read_schedule(stored)
        zone = zone_of(schedule.definition.zone)
    except AnchorWatchError as error:
        return f"{stored.subject}: {error.message}"
    name = as_verbs_take_it(schedule.name, schedule.definition.workspace)
    if schedule.state == "active" and instant_of(schedule.after, zone) > now_ms + AHEAD_MS_MAX:
        return f"{name} was handled through {slot_text(schedule.after)} by a clock that ran ahead: delete it and create it again"
    next_ms = machine.next_ms(schedule, Cron(schedule.definition.cron), zone)
    if next_ms is None or next_ms > now_ms - LATE_MS_MAX:
        return ""
    return f"{name} was due {(now_ms - next_ms) // 1000} s ago and has not run"
