"""The doctor's checks of stopped work: dead letters, stalled turns, quarantine, progress, unknown effects and kill switches.

A check fails if only a person can resume the work. A kill switch is a person's own decision, so it is only a warning.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from anchorwatch.bus.port import Bus, Stored
from anchorwatch.cli.checks import Check, as_verbs_take_it, failed, named, passed, session, warned
from anchorwatch.codec import decode_anchor
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.errors import AnchorWatchError, Damaged
from anchorwatch.core.names import SessionRef
from anchorwatch.core.session.pacing import NO_PROGRESS_RUNS
from anchorwatch.journal.blocks import read_block
from anchorwatch.journal.commit import Committer
from anchorwatch.journal.effects import EffectJournal
from anchorwatch.journal.heads import head_of, last_anchor
from anchorwatch.journal.letters import read_letter
from anchorwatch.journal.switches import Switch, SwitchJournal, first_on, subjects_of
from anchorwatch.topology.streams import ANCHORS_BUCKET, DEAD, journal_stream
from anchorwatch.topology.subjects import BLOCK, CLAIM, DEAD_LETTER, EFFECT, SessionSubjects, parse_register

STALLED_MS_MAX = 15 * 60_000
"""A turn without a record for this long has stalled: a model call or a takeover is far shorter."""
CLAIMED_MS_MAX = 2 * 3_600_000
"""The limit if the last record is a claim: the executor may still be running the command."""
WRITER = "doctor:"
OVER_BUDGET_RUNS = 2
"""One turn over its budget may be followed by a smaller one; two in a row are not a chance."""
LETTERS, SESSIONS, PROGRESS, EFFECTS = "dead letters", "sessions", "progress", "effects"
SWITCHES = "kill switches"

RunCheck = Callable[[Bus], Awaitable[Check]]


async def examine(bus: Bus) -> list[Check]:
    """Run each check; an error fails only its own check."""
    checks: dict[str, RunCheck] = {
        LETTERS: _letters,
        SESSIONS: _sessions,
        PROGRESS: _progress,
        EFFECTS: _effects,
        SWITCHES: _switches,
    }
    return [await _attempt(name, run_check, bus) for name, run_check in checks.items()]


async def _attempt(name: str, run_check: RunCheck, bus: Bus) -> Check:
    try:
        return await run_check(bus)
    except AnchorWatchError as error:
        return failed(name, error.message, error.hint)


async def _letters(bus: Bus) -> Check:
    opened = []
    for stored in await _lasts(bus, DEAD, DEAD_LETTER.filter()):
        try:
            letter = read_letter(stored).letter
        except Damaged:
            # The next failure of its message writes the letter again.
            continue
        if letter is not None and letter.state == "open":
            of = as_verbs_take_it(letter.address.letter_id, letter.address.workspace)
            opened.append(f"{of}: {letter.fault.text}")
    if not opened:
        return passed(LETTERS, "no open letters")
    hint = "`anchorwatch dead-letters` lists them; fix the cause, then retry or drop each"
    return failed(LETTERS, f"{len(opened)} open: {named(opened)}", hint)


async def _sessions(bus: Bus) -> Check:
    view = await bus.bucket(ANCHORS_BUCKET)
    refs = [SessionRef(*key.split(".", 1)) for key in await view.keys()]
    stuck = [why for ref in refs if (why := await _why_stuck(bus, ref))]
    if not stuck:
        return passed(SESSIONS, "no stalled turns, no quarantined sessions")
    return failed(
        SESSIONS,
        named(stuck),
        "`anchorwatch show SESSION` shows the turn; `anchorwatch repair SESSION` repairs a quarantined session",
    )


async def _progress(bus: Bus) -> Check:
    """Check that turns reach something, and that no person has paused them."""
    found, paused = [], []
    view = await bus.bucket(ANCHORS_BUCKET)
    for key in await view.keys():
        ref = SessionRef(*key.split(".", 1))
        try:
            last = await last_anchor(bus, journal_stream(), ref)
            anchor = None if last is None else decode_anchor(last.payload)[0]
        except Damaged:
            # The check of sessions reports it.
            continue
        if anchor is not None and (why := no_progress(anchor)):
            found.append(f"{session(ref)}: {why}")
        elif anchor is not None and anchor.status == "paused":
            paused.append(session(ref))
    if found:
        return failed(PROGRESS, named(found), "`anchorwatch timeline SESSION` shows each turn and its reason")
    if paused:
        return warned(PROGRESS, f"paused: {named(paused)}", "`anchorwatch resume SESSION` resumes it")
    return passed(PROGRESS, "no session is in an emergency, over its budget or without progress")


def no_progress(anchor: Anchor) -> str:
    """Why the turns of a session reach nothing; empty if they do. A pause ends no emergency."""
    if anchor.status in ("quarantined", "deleted"):
        return ""
    if anchor.emergency is not None:
        return f"emergency: {anchor.emergency}"
    outcome, runs = anchor.last_run_outcome, anchor.runs_without_progress
    if outcome == "unresolved":
        return f"turn {anchor.last_run_id} left it unresolved: {anchor.last_run_reason}"
    if outcome == "over_budget" and runs >= OVER_BUDGET_RUNS:
        return f"{runs} turns in a row without progress, the last over its budget: {anchor.last_run_reason}"
    if runs >= NO_PROGRESS_RUNS:
        return f"{runs} turns in a row without progress, the last {outcome}: {anchor.last_run_reason}"
    return ""


async def _why_stuck(bus: Bus, ref: SessionRef) -> str:
    """Why a session does not progress; empty if it does, or if a person holds it."""
    try:
        page = await bus.last(journal_stream(), [SessionSubjects(ref).planner_family])
    except Damaged as damage:
        return await _why_unread(bus, ref, damage)
    anchors = [each for each in page.messages if parse_register(each.subject).kind == "p.anchor"]
    stored = max(anchors, key=lambda each: each.sequence, default=None)
    if stored is None:
        return ""
    try:
        anchor, record = decode_anchor(stored.payload)
    except Damaged as damage:
        return f"{session(ref)}: its anchor cannot be read: {damage.message}"
    if anchor.status == "quarantined":
        return f"{session(ref)} is quarantined: {record.body.get('reason', '')}"
    if anchor.status != "active" or await _is_held(bus, ref, anchor):
        return ""
    newest = max(page.messages, key=lambda each: each.sequence)
    newest = await _newest_effect(bus, ref, anchor.run_id, newest) or newest
    idle_ms = await bus.server_time_ms() - newest.time_ms
    if idle_ms <= (CLAIMED_MS_MAX if newest.subject.endswith(f".{CLAIM}") else STALLED_MS_MAX):
        return ""
    return f"{session(ref)}: run {anchor.run_id} has recorded nothing for {idle_ms // 60_000} min"


async def _why_unread(bus: Bus, ref: SessionRef, damage: Damaged) -> str:
    """Why a session with unreadable records does not progress; empty if a later repair accepted them."""
    try:
        last = await last_anchor(bus, journal_stream(), ref)
        if last is None:
            return ""
        anchor, record = decode_anchor(last.payload)
    except Damaged:
        return f"{session(ref)}: {damage.message}"
    if anchor.status == "quarantined":
        return f"{session(ref)} is quarantined: {record.body.get('reason', '')}"
    head = await head_of(bus, journal_stream(), SessionSubjects(ref).planner_family)
    return f"{session(ref)}: {damage.message}" if head.damage else ""


async def _newest_effect(bus: Bus, ref: SessionRef, run_id: int, behind: Stored) -> Stored | None:
    effects = EFFECT.filter(workspace=ref.workspace, session=ref.session, run=run_id)
    found = await _lasts(bus, journal_stream(), effects, behind.sequence + 1)
    return max(found, key=lambda each: each.sequence, default=None)


async def _is_held(bus: Bus, ref: SessionRef, anchor: Anchor) -> bool:
    page = await bus.last(journal_stream(), subjects_of(ref, anchor.agent))
    return first_on(page.messages) is not None


async def _effects(bus: Bus) -> Check:
    stream = journal_stream()
    effects = EffectJournal(bus, Committer(bus, stream), WRITER)
    newest = (await bus.stream_state(stream)).last_sequence
    unknown = []
    for stored in await _lasts(bus, stream, BLOCK.filter()):
        workspace = (BLOCK.parse(stored.subject) or {})["workspace"]
        for entry in read_block(stored).entries:
            ref = SessionRef(workspace, entry.session)
            # An entry says that an effect may be unknown; the effect says whether it is.
            if (await effects.look(ref, entry.pool, entry.call, newest)).unknown:
                unknown.append(as_verbs_take_it(str(entry), workspace))
    if not unknown:
        return passed(EFFECTS, "no unknown effect blocks a resource")
    hint = "find out whether each took effect, then run `anchorwatch effects resolve CALL done|not-done`"
    return failed(EFFECTS, f"{len(unknown)} unknown; their resources are blocked: {named(unknown)}", hint)


async def _switches(bus: Bus) -> Check:
    journal = SwitchJournal(bus, Committer(bus, journal_stream()), WRITER)
    on = [
        f"{_said(each)}, by {each.by}" for each in await journal.all() if each.on and not each.is_journal_hold
    ]
    hint = "nothing starts in their scopes; `anchorwatch kill-switch off` with the scope turns one off"
    return warned(SWITCHES, named(on), hint) if on else passed(SWITCHES, "no switch is on")


def _said(switch: Switch) -> str:
    return (
        str(switch)
        if switch.scope in ("workspace", "mesh")
        else as_verbs_take_it(str(switch), switch.workspace)
    )


async def _lasts(bus: Bus, stream: str, filter_: str, start: int = 1) -> Sequence[Stored]:
    """The last message of each subject, without a limit on their number."""
    found: dict[str, Stored] = {}
    while True:
        page = await bus.range(stream, filter_, start)
        found |= {stored.subject: stored for stored in page.messages}
        if not page.more:
            return list(found.values())
        start = page.messages[-1].sequence + 1
