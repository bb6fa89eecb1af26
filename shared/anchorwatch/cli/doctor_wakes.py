"""The doctor's look at what wakes sessions: whether there is one that nothing would wake, or a schedule that nobody sees to.

Planners find such a session by themselves, when they start and at each sweep. So what is found here says that no planner does, or
that it cannot; it is looked at twice, since a bell is set a moment after the anchor that calls for it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anchorwatch.bus.port import Bus, Stored
from anchorwatch.cli.checks import Check, as_verbs_take_it, failed, named, note, passed, session
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
"""What fell due this long ago is overdue: a planner looks at once, and a sweep a few times in a minute."""
AHEAD_MS_MAX = 2 * 3_600_000
"""A clock that was set back by an hour is no reason to do anything about a schedule; one that was days ahead is."""
AGAIN_S = 2.0
RUNNING = "is a planner ready? `anchorwatch status`; `anchorwatch doctor --fix` has each looked at now"


@dataclass(frozen=True, slots=True)
class Neglected:
    """A session that nothing will wake, and why it is said to be so."""

    ref: SessionRef
    why: str


def neglect(anchor: Anchor, bell_ms: int | None, heartbeat_s: float | None, now_ms: int) -> str:
    """Why nothing wakes a session in time; empty: something does.

    ``bell_ms``: when its bell in `TICKS` rings, if it is set. ``heartbeat_s``: its agent's own; None: that of the services, which
    is not known here.
    """
    if anchor.status != "idle":
        return ""
    if anchor.next_check_at is None:
        return "it has no next check"
    check_ms = from_iso(anchor.next_check_at)
    if heartbeat_s is not None and check_ms > now_ms + heartbeat_s * 1000 + LATE_MS_MAX:
        return f"its next check, {anchor.next_check_at}, lies beyond its heartbeat"
    rings = bell_ms is not None and bell_ms > now_ms - LATE_MS_MAX
    if check_ms < now_ms - LATE_MS_MAX and not rings:
        return f"its check of {anchor.next_check_at} is overdue"
    if check_ms > now_ms and bell_ms is None:
        return "its bell is not set"
    return ""


async def examine(bus: Bus) -> tuple[list[Check], list[Neglected]]:
    """Look at every session and every schedule.

    Raises:
        Unavailable.
    """
    directory = await AgentDirectory.open(bus)
    view = await bus.bucket(ANCHORS_BUCKET)
    refs = [SessionRef(*key.split(".", 1)) for key in await view.keys()]
    found = await _neglected(bus, directory, refs)
    late = await _late_schedules(bus, refs)
    if found or late:
        await asyncio.sleep(AGAIN_S)
        found = await _neglected(bus, directory, [each.ref for each in found])
        late = await _late_schedules(bus, refs) if late else []
    return [_sessions(len(refs), found), _schedules(late)], found


async def mend(data_dir: Path | None, neglected: Sequence[Neglected]) -> Check:
    """Ask for a turn of each, through the API: its end sets the next check."""
    from anchorwatch.cli.target import open_api

    woken = []
    try:
        for each in neglected:
            with open_api(data_dir, None, None, workspace=each.ref.workspace) as api:
                wish = {"reason": f"the doctor found that nothing would wake it: {each.why}"}
                api.post(f"/api/sessions/{each.ref.session}/trigger", wish)
            woken.append(session(each.ref))
    except AnchorWatchError as error:
        return failed("mended", f"{len(woken)} of {len(neglected)} sessions: {error.message}", error.hint)
    return note("mended", f"asked for a turn of {named(woken)}")


def _sessions(known: int, found: Sequence[Neglected]) -> Check:
    if not found:
        return passed("wakes", f"{known} looked at: each is woken by something, or held by a person")
    return failed("wakes", named([f"{session(each.ref)}: {each.why}" for each in found]), RUNNING)


def _schedules(late: Sequence[str]) -> Check:
    if not late:
        return passed("schedules", "none is overdue")
    return failed("schedules", named(late), "is a planner ready? `anchorwatch status`; its log says more")


async def _neglected(bus: Bus, directory: AgentDirectory, refs: Sequence[SessionRef]) -> list[Neglected]:
    found = []
    for ref in refs:
        try:
            last = await last_anchor(bus, journal_stream(), ref)
            if last is None:
                continue
            anchor, _ = decode_anchor(last.payload)
        except Damaged:
            # It is quarantined, and says so elsewhere.
            continue
        why = neglect(
            anchor,
            await _bell_ms(bus, ref),
            await _heartbeat_s(directory, anchor),
            await bus.server_time_ms(),
        )
        if why and not await _is_held(bus, ref, anchor):
            found.append(Neglected(ref, why))
    return found


async def _bell_ms(bus: Bus, ref: SessionRef) -> int | None:
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
    """What is wrong with a schedule in a message of its register; empty: nothing."""
    try:
        schedule = read_schedule(stored)
        zone = zone_of(schedule.definition.zone)
    except AnchorWatchError as error:
        return f"{stored.subject}: {error.message}"
    name = as_verbs_take_it(schedule.name, schedule.definition.workspace)
    if schedule.state == "active" and instant_of(schedule.after, zone) > now_ms + AHEAD_MS_MAX:
        return f"{name} was seen to up to {slot_text(schedule.after)}, by a clock that ran ahead: delete it, and make it anew"
    next_ms = machine.next_ms(schedule, Cron(schedule.definition.cron), zone)
    if next_ms is None or next_ms > now_ms - LATE_MS_MAX:
        return ""
    return f"{name} was due {(now_ms - next_ms) // 1000} s ago, and nobody saw to it"
