"""Whether a simulated mesh has come to rest: nothing is on its way, and every session waits for its next check."""

from __future__ import annotations

from collections.abc import Iterable

from anchorwatch.bus.port import Stored
from anchorwatch.codec import decode
from anchorwatch.core.letters import DeadLetter, LetterState
from anchorwatch.core.names import SessionRef
from anchorwatch.core.session.pacing import NO_PROGRESS_RUNS
from anchorwatch.journal.letters import read_letter
from anchorwatch.journal.schedule_records import read_schedule
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.topology.streams import DEAD, EVENTS, TICKS, journal_stream
from anchorwatch.topology.subjects import DEAD_LETTER, INPUT, SCHEDULE, SessionSubjects

_ALL = 2**53


def letters(mesh: SimMesh, *states: LetterState) -> list[DeadLetter]:
    """The dead letters in one of these states."""
    found = mesh.server.stream(DEAD).lasts([DEAD_LETTER.filter()], _ALL).messages
    known = [letter for each in found if (letter := read_letter(each).letter)]
    return [letter for letter in known if letter.state in states]


def is_quiet(mesh: SimMesh, refs: Iterable[SessionRef]) -> bool:
    """Whether nothing moves now, and nothing that was accepted waits for a turn."""
    server = mesh.server
    for stream in (journal_stream(), EVENTS, TICKS):
        for state in server.consumers.states(stream).values():
            if state.pending or state.ack_pending:
                return False
    registers = server.stream(journal_stream()).lasts([SCHEDULE.filter()], _ALL).messages
    if letters(mesh, "failing", "retried") or any(read_schedule(each).living for each in registers):
        return False
    return all(_is_idle(mesh, ref) for ref in refs)


def is_slowed(mesh: SimMesh, ref: SessionRef) -> bool:
    """Whether the session makes no progress, so that what no person wants at once waits ever longer in it."""
    anchor = mesh.anchor_now(ref)
    return anchor is not None and anchor.runs_without_progress >= NO_PROGRESS_RUNS


def _is_idle(mesh: SimMesh, ref: SessionRef) -> bool:
    anchor = mesh.anchor_now(ref)
    store = mesh.server.stream(journal_stream())
    inputs = store.lasts([INPUT.filter(workspace=ref.workspace, session=ref.session)], _ALL)
    scheduled = mesh.server.stream(TICKS).lasts([SessionSubjects(ref).tick_schedule], _ALL).messages
    if anchor is None or anchor.status != "idle" or not scheduled:
        return False
    joined = set(anchor.inputs_joined)
    return all(
        each.sequence <= anchor.inputs_through or each.sequence in joined or _is_settled(each)
        for each in inputs.messages
    )


def _is_settled(stored: Stored) -> bool:
    """Whether no turn is to take an input: a slot that was skipped, say."""
    return ".in.slot-" in stored.subject and "settled" in decode(stored.payload).body
