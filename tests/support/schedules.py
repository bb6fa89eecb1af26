"""Schedules of a simulated mesh: created from outside, with the disposition of their slots."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from anchorwatch.codec import decode
from anchorwatch.core.names import SessionRef
from anchorwatch.core.schedules import machine
from anchorwatch.core.schedules.cron import Cron
from anchorwatch.core.schedules.schedule import Changed, Definition, Missed, Overlap, Schedule
from anchorwatch.journal.orders import Asked
from anchorwatch.journal.schedules import ScheduleJournal
from anchorwatch.testing.checks.wakes import ledger_of
from anchorwatch.testing.mesh import WORKSPACE, SimMesh
from anchorwatch.zones import zone_of


def journal_of(mesh: SimMesh) -> ScheduleJournal:
    return ScheduleJournal(mesh.bus, mesh.committer, "outside")


async def schedule(
    mesh: SimMesh,
    ref: SessionRef,
    cron: str = "* * * * *",
    *,
    missed: Missed = "one",
    overlap: Overlap = "skip",
    key: str = "k",
    name: str = "n",
) -> Schedule:
    definition = Definition(WORKSPACE, name, ref.session, cron, "UTC", "count", missed, overlap)
    asked = Asked(f"c-{key}", "ada", f"{cron} {missed} {overlap}")
    made, _ = await journal_of(mesh).make(definition, zone_of("UTC"), asked, mesh.server.now_ms())
    return made


async def order(mesh: SimMesh, verb: Literal["pause", "resume", "delete"], name: str = "n") -> None:
    """Give an order about a schedule."""
    changed = Changed("ada", mesh.server.now_ms())

    def change(found: Schedule) -> Schedule:
        cron, zone = Cron(found.definition.cron), zone_of(found.definition.zone)
        match verb:
            case "pause":
                return machine.pause(found, cron, zone, changed)
            case "resume":
                return machine.resume(found, zone, changed)
            case "delete":
                return machine.delete(found, cron, zone, changed)

    asked = Asked(f"c-{verb}-{name}", changed.by, verb)
    await journal_of(mesh).order(WORKSPACE, name, asked, changed.at_ms, change)


async def standing(mesh: SimMesh) -> Schedule:
    return await journal_of(mesh).find(WORKSPACE, "n")


async def slots(mesh: SimMesh, ref: SessionRef) -> list[str]:
    """The slots that became inputs, in order, with their disposition if they had one from the start."""
    found = []
    for _, subject, payload in await mesh.records(ref):
        body = decode(payload).body if subject.startswith("in.slot-") else {}
        if body:
            found.append(f"{body['data']['slot'][11:]} {body.get('settled', '')}".strip())
    return found


def dispositions(mesh: SimMesh, ref: SessionRef) -> Counter[str]:
    """The dispositions of the occurrences, from the wake-up ledger."""
    history = mesh.history(ref)
    ledger = ledger_of(history)
    assert ledger.twice == ()
    return Counter(
        ledger.wakes[each.sequence].disposition
        for each in history.inputs
        if each.input_id.startswith("slot-")
    )


def minutes(first: int, last: int) -> list[str]:
    return [f"{each // 60:02}:{each % 60:02}" for each in range(first, last + 1)]
