"""What a run of the whole mesh is held to: every check of `anchorwatch.testing.checks`, and what only the whole mesh can show."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from anchorwatch.bus.port import Stored
from anchorwatch.codec import decode
from anchorwatch.core.anchor import Pace
from anchorwatch.core.effect.state import EffectState, apply_effect
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.core.schedules.schedule import Schedule
from anchorwatch.core.session.pacing import hurries
from anchorwatch.core.times import from_iso
from anchorwatch.core.tools import EffectClass
from anchorwatch.journal.effect_mapping import read_effect
from anchorwatch.journal.history import History, read_history
from anchorwatch.journal.mapping import read_command
from anchorwatch.journal.schedule_records import read_schedule
from anchorwatch.journal.schedules import session_of
from anchorwatch.service.rates import rate_of
from anchorwatch.testing.checks import Arrivals, Call, Evidence, check
from anchorwatch.testing.checks.effects import OWNER_DIED
from anchorwatch.testing.checks.limits import check_limits
from anchorwatch.topology.streams import ANCHORS_BUCKET, TICKS, bucket_stream
from anchorwatch.topology.subjects import SCHEDULE, SessionSubjects, matches, parse_register
from anchorwatch_memory.store import Store
from anchorwatch_notifier.notices import read_notice

from tests.sim.whole.pack import CLASSES, SHARED_RATE, world_agent
from tests.sim.whole.receivers import HOOK

if TYPE_CHECKING:
    from tests.sim.whole.run import Scene


def judge(scene: Scene, *, rested: bool) -> list[str]:
    """Every promise that the run broke, in words."""
    found = [] if rested else ["lost: the mesh does not come to rest"]
    found += scene.people.wanted.broken
    journal = scene.mesh.journal()
    for ref in scene.refs:
        found += [f"{ref}: {text}" for text in _of_session(scene, ref, journal)]
    found += [f"{text}" for text in _projections(scene, journal)]
    found += _shared_limit(scene, journal)
    found += list(_schedules(journal))
    found += list(overlaps(journal))
    found += [f"a write outside of every edge: {subject}" for subject in scene.mesh.watch.unguarded]
    found += [f"a process ended by itself: {instance}: {error!r}" for instance, error in scene.mesh.crashes]
    return found


def _of_session(scene: Scene, ref: SessionRef, journal: list[Stored]) -> Iterator[str]:
    records = [each for each in journal if parse_register(each.subject).ref == ref]
    history = read_history(records)
    wanted = scene.people.wanted
    receipts = {id_: sequence for (session, id_), sequence in wanted.receipts.items() if session == ref}
    evidence = Evidence(
        history,
        accepted=tuple(receipts.values()),
        events=tuple(wanted.events),
        classes=CLASSES,
        calls={
            key: Call(key, note.begun, tuple(note.ended), note.done)
            for key, note in scene.provider.notes.items()
            if note.ref == ref and CLASSES[note.tool] is not EffectClass.READ
        },
        arrivals=tuple(each for each in scene.receivers.arrivals()),
    )
    yield from map(str, check(evidence))
    yield from map(
        str, check_limits(evidence, rate_of(world_agent(sharing=scene.sharing), scene.mesh.settings))
    )
    yield from _receipts(history, receipts)
    yield from _view(scene, ref, records)
    yield from _schedule(scene, ref, history)
    yield from _notices(evidence, records)
    yield from _deaths(history, scene.storm.deaths)


def overlaps(journal: list[Stored]) -> Iterator[str]:
    """Commands on one resource that were claimed while an earlier one, of any session, had no outcome."""
    resources: dict[tuple[SessionRef, CallId], str] = {}
    effects: dict[tuple[SessionRef, CallId], EffectState] = {}
    for stored in journal:
        register = parse_register(stored.subject)
        if register.kind == "p.cmd":
            command = read_command(register.pool, decode(stored.payload).body)
            resources[register.ref, command.call] = command.resource
        elif register.kind.startswith("fx."):
            name = (register.ref, register.call)
            state = effects.get(name, EffectState())
            if state.outcome is None:
                effects[name] = apply_effect(state, stored.sequence, stored.time_ms, read_effect(stored))
    held: dict[str, list[tuple[int, float, str]]] = {}
    for (ref, call), state in effects.items():
        if state.first_claim and (resource := resources[ref, call]):
            ended = state.outcome_sequence or math.inf
            held.setdefault(resource, []).append((state.first_claim, ended, f"{ref.session}/{call}"))
    for resource, each in held.items():
        for (_, ended, earlier), (claimed, _, later) in pairwise(sorted(each)):
            if claimed < ended:
                yield f"duplicated: {later} was claimed on {resource} before {earlier} had its outcome"


def _schedules(journal: list[Stored]) -> Iterator[str]:
    """Each slot is seen to once, in order, and what became of it is counted; what was made is an input."""
    books: dict[str, list[Schedule]] = {}
    for stored in journal:
        if SCHEDULE.parse(stored.subject) is not None:
            schedule = read_schedule(stored)
            books.setdefault(schedule.schedule_id, []).append(schedule)
    inputs = Counter(each.subject for each in journal if ".in.slot-" in each.subject)
    for book in books.values():
        name, counts = book[-1].name, book[-1].counts
        for before, after in pairwise(book):
            if after.after < before.after:
                yield f"duplicated: the schedule {name} went from {before.after} back to {after.after}"
        session = session_of(book[-1]).session
        made = counts.made + counts.skipped
        there = [subject for subject in inputs if f".{session}.in." in subject]
        if made > len(there):
            yield f"lost: the schedule {name} made {made} inputs, and of its session are there {len(there)}"
    for subject, times in inputs.items():
        if times > 1:
            yield f"duplicated: {subject} was written {times} times"


def _receipts(history: History, receipts: dict[str, int]) -> Iterator[str]:
    standing = {each.input_id: each.sequence for each in history.inputs}
    for id_, sequence in receipts.items():
        if standing.get(id_) != sequence:
            yield f"lost: {id_} was receipted at {sequence}, and stands at {standing.get(id_)}"


def _deaths(history: History, deaths: set[str]) -> Iterator[str]:
    """Nobody is called dead, or silent, who was neither."""
    for done in history.outcomes:
        owners = {
            f"{each.claimed.owner.instance}:{each.claimed.owner.incarnation}"
            for each in history.claims_of(done.outcome.call)
        }
        if done.outcome.error == OWNER_DIED and not owners & deaths:
            yield f"guessed: {done.outcome.call} is unknown since its owner died, and of {sorted(owners)} nobody did"


def _view(scene: Scene, ref: SessionRef, records: list[Stored]) -> Iterator[str]:
    """The anchor's view is the last anchor record."""
    anchors = SessionSubjects(ref).anchors
    last = next((each for each in reversed(records) if matches(anchors, each.subject)), None)
    key = f"$KV.{ANCHORS_BUCKET}.{ref.workspace}.{ref.session}"
    page = scene.mesh.server.stream(bucket_stream(ANCHORS_BUCKET)).lasts([key], 2**53)
    if last is None or not page.messages or page.messages[0].payload != last.payload:
        yield "lost: the view of the anchor is not its last record"


def _schedule(scene: Scene, ref: SessionRef, history: History) -> Iterator[str]:
    """A session at rest has a schedule that wakes it at its next check, or before."""
    anchor = history.anchors[-1].anchor
    if anchor.status != "idle" or anchor.next_check_at is None:
        return
    subject = SessionSubjects(ref).tick_schedule
    standing = scene.mesh.server.stream(TICKS).lasts([subject], 2**53).messages
    if not standing:
        yield f"lost: nothing will wake it at {anchor.next_check_at} ({from_iso(anchor.next_check_at)})"


def _notices(evidence: Evidence, records: list[Stored]) -> Iterator[str]:
    """Whatever has something to tell was told to each receiver, or nobody can know."""
    states = {each.delivery_id: each.state for each in evidence.history.sent}
    for stored in records:
        notice = read_notice(stored)
        for arrivals in evidence.arrivals if notice else ():
            assert notice is not None
            id_ = notice.delivery_id(arrivals.channel)
            yield from _told(arrivals, id_, states.get(id_, "nothing"), notice.title)
    known = set(states)
    for arrivals in evidence.arrivals:
        of_others = [id_ for id_ in arrivals.seen if id_ not in known and _is_of(id_, records)]
        if of_others:
            yield f"guessed: {arrivals.channel} was told of what nobody recorded: {of_others}"


def _told(arrivals: Arrivals, id_: str, state: str, title: str) -> Iterator[str]:
    times = arrivals.seen.get(id_, 0)
    if state not in ("sent", "unknown") or (state == "sent" and not times):
        yield f"lost: {arrivals.channel} was not told that {title} ({state})"
    if times > 1 and arrivals.channel != HOOK:
        yield f"duplicated: {arrivals.channel} was told {times} times that {title}"


def _is_of(delivery_id: str, records: list[Stored]) -> bool:
    of = delivery_id.partition("-")[0]
    # What tells of a letter is of no session.
    return of.isdecimal() and int(of) in {each.sequence for each in records}


def _shared_limit(scene: Scene, journal: list[Stored]) -> Iterator[str]:
    """No turn began against the limit that the sessions of the agent share, and each of them was counted."""
    registers = [parse_register(each.subject) for each in journal]
    refs = {each.ref for each in registers if each.kind == "p.anchor"}
    histories = {ref: scene.mesh.history(ref) for ref in sorted(refs)}
    begun = {each.sequence: ref for ref, of in histories.items() for each in of.of_kind(Kind.ACQUIRED)}
    counted = [each for each in journal if parse_register(each.subject).kind == "pace"]
    if len(counted) != (len(begun) if scene.sharing else 0):
        yield f"lost: {len(begun)} turns began, {len(counted)} were counted"
    before: Pace | None = None
    for stored in counted:
        pace, ref = Pace(**decode(stored.payload).body["pace"]), begun[stored.sequence - 1]
        history = histories[ref]
        run = next(each for each in history.anchors if each.sequence == stored.sequence - 1).anchor.run_id
        held = SHARED_RATE.hold_of(before, from_iso(pace.started_at))
        if held is not None and not any(map(hurries, history.taken(run))):
            yield f"guessed: {ref} began run {run} at {pace.started_at}, against the limit of its agent"
        before = pace


def _projections(scene: Scene, journal: list[Stored]) -> Iterator[str]:
    """What memory holds is what a rebuild from the journal would hold."""
    anew = Store(":memory:")
    try:
        anew.project(journal)
        there, expected = scene.disk.projections.store.dump(), anew.dump()
        for table, rows in expected.items():
            if there.get(table) != rows:
                yield f"lost: memory's table {table} is not what the journal says"
    finally:
        anew.close()
