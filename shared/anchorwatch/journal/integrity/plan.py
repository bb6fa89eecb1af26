"""From what was found to what a repair would do, and what it means. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from anchorwatch.codec import canonical_json, sha256_hex
from anchorwatch.core.anchor import Anchor, Status
from anchorwatch.core.errors import NewerSchema, Refused, SessionDeleted
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.session.events import CommandDecided
from anchorwatch.core.session.quarantine import Lost, rebuilt
from anchorwatch.journal.integrity.families import Family
from anchorwatch.journal.integrity.findings import Finding
from anchorwatch.journal.integrity.losses import may_have_lost
from anchorwatch.journal.integrity.report import Examination
from anchorwatch.journal.quarantine import link
from anchorwatch.journal.truncation import Gap, LostRecord

FINDINGS_MAX: Final = 500
OPEN_RUNS: Final = 1_000
"""So many runs may have begun beyond an end that no witness knows."""
_SKIPPED: Final = frozenset({"unreadable", "misplaced"})
_HARMLESS: Final = frozenset({"late", "art", "sent", "ctl"})


@dataclass(frozen=True, slots=True)
class Remedy:
    """A finding, and what it will mean once the repair stands."""

    finding: Finding
    meaning: str

    def to_json(self) -> dict[str, Any]:
        """As people and programs see it."""
        return {**self.finding.to_json(), "meaning": self.meaning}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a repair would do.

    ``head`` and ``head_digest``: the last planner record, behind which it is written. ``believed``: what is safe to
    believe of the anchor; ``was``: what the session was before it was quarantined. ``restarts``: it did not run, and
    its turn ends. ``reloads``: loading begins behind the damage. ``unclear``: commands of which nobody can tell
    what became of them.
    """

    ref: SessionRef
    head: int
    head_digest: str
    believed: Anchor
    believed_from: int
    was: Status
    restarts: bool
    reloads: bool
    remedies: tuple[Remedy, ...]
    unclear: tuple[Family, ...]

    @property
    def digest(self) -> str:
        """What a person confirms: this plan, for the session as it is now, and no other."""
        content = {
            "session": str(self.ref),
            "head": [self.head, self.head_digest],
            "believed": self.believed.to_json(),
            "was": self.was,
            "restarts": self.restarts,
            "findings": [remedy.finding.id for remedy in self.remedies],
        }
        return sha256_hex(canonical_json(content))

    @property
    def passed_over(self) -> tuple[int, ...]:
        """The records that loading passes over from then on."""
        found = (remedy.finding for remedy in self.remedies if remedy.finding.trouble in _SKIPPED)
        return tuple(finding.sequence for finding in found if finding.kind not in _HARMLESS)

    def to_json(self) -> dict[str, Any]:
        """As people and programs see it."""
        ends = self.believed.turn.id if self.restarts and self.believed.turn else None
        return {
            "session": self.ref.session,
            "plan": self.digest,
            "behind": self.head,
            "status": self.believed.status,
            "restarts": self.restarts,
            "ends_turn": ends,
            "run_id": self.believed.run_id,
            "fence": max(self.believed.fence.run, self.believed.run_id + 1),
            "objectives": list(self.believed.objectives),
            "constraints": list(self.believed.constraints),
            "anchor_of": self.believed_from,
            "unclear": [f"{self.ref.session}/{family.call}" for family in self.unclear],
            "remedies": [remedy.to_json() for remedy in self.remedies],
        }


def plan(examination: Examination, gaps: Sequence[Gap] = ()) -> Plan:
    """What would make the session run again, or accept what no longer matters.

    ``gaps``: losses at the journal's end that are being accepted. Where the session may have lost records there, whatever it may
    have begun counts as begun.

    Raises:
        Refused: nothing is to be repaired, or nothing can be: no anchor can be read, or there are too many findings.
        NewerSchema: a newer release must look first. SessionDeleted.
    """
    examiner, found = examination.examiner, examination.open
    anchor, head = examiner.anchor, examiner.head
    _check_release(found)
    if anchor is None or head is None:
        raise Refused(
            f"no anchor of {examination.ref.session} can be read: nothing says what it was told to do",
            hint="make a new session; the journal keeps what there is of this one",
        )
    if anchor.status == "deleted":
        raise SessionDeleted(f"the session {examination.ref.session} was deleted: nothing of it runs")
    own = [each for each in gaps if examiner.first < each.first and may_have_lost(each, examination.ref)]
    stopped = bool(examination.unloadable) or anchor.status == "quarantined" or bool(own)
    if not stopped and not found:
        raise Refused(f"there is nothing to repair in {examination.ref.session}")
    if len(found) > FINDINGS_MAX:
        raise Refused(
            f"{examination.ref.session} has {len(found)} findings, a repair takes {FINDINGS_MAX}",
            hint="bring back an older copy of the server's data",
        )
    lost = _with_gaps(examiner.lost, own, examination)
    unclear = tuple(examiner.families.open()) if stopped else ()
    if own:
        unclear = tuple(_begun(unclear, own, examination))
    return Plan(
        ref=examination.ref,
        head=head.sequence,
        head_digest=link(head),
        believed=rebuilt(anchor, lost),
        believed_from=examiner.anchor_sequence,
        was=(examiner.before_quarantine or "idle") if anchor.status == "quarantined" else anchor.status,
        restarts=stopped,
        reloads=bool(examination.unloadable),
        remedies=tuple(Remedy(each, _meaning(each, lost.unreadable, unclear)) for each in found),
        unclear=unclear,
    )


def _with_gaps(lost: Lost, gaps: Sequence[Gap], examination: Examination) -> Lost:
    """With the anchors that may have stood in the gaps; a turn that one of them may have begun counts as having acted."""
    anchor, behind = examination.examiner.anchor, examination.examiner.anchor_sequence
    places, runs = set(lost.unreadable), set(lost.runs)
    for gap in gaps:
        known = {each.sequence: each.register for each in gap.records}
        for at in range(max(gap.first, behind + 1), gap.through + 1):
            register = known.get(at)
            if register is None or (register.ref == examination.ref and register.kind == "p.anchor"):
                places.add(at)
        runs |= {call.run for _, call, _ in _calls(gap, examination.ref)}
        if gap.open_end and anchor is not None:
            runs.add(anchor.run_id + OPEN_RUNS)
            places.add(gap.through)
    if anchor is not None and len(places) > len(lost.unreadable):
        runs.add(anchor.run_id + (len(places) + 1) // 2)
    return Lost(tuple(sorted(places)), frozenset(runs))


def _begun(unclear: Sequence[Family], gaps: Sequence[Gap], examination: Examination) -> list[Family]:
    """The commands that may have been begun, and of which nobody can tell what became of them; a read does no harm."""
    families = examination.examiner.families
    decided = {
        (pool, call): command
        for gap in gaps
        for record, call, pool in _calls(gap, examination.ref)
        if (command := _command_of(record, call, pool)) is not None
    }
    found = {
        (each.pool, each.call): each for each in unclear if each.command is None or each.command.mutating
    }
    for gap in gaps:
        for record, call, pool in _calls(gap, examination.ref):
            family = families.by_call.get((pool, call)) or Family(
                pool, call, command=families.commands.get((pool, call))
            )
            if family.state.outcome is not None:
                continue
            if record.register.kind == "fx.claim" or gap.unlisted or gap.open_end:
                family.claims.add(record.sequence)
            if family.claims:
                family.command = family.command or decided.get((pool, call))
                found[(pool, call)] = family
    return sorted(found.values(), key=lambda family: (family.call, family.pool))


def _calls(gap: Gap, ref: SessionRef) -> Iterator[tuple[LostRecord, CallId, str]]:
    """The lost records of a session that are about a command, with the command and its pool."""
    for record in gap.of_session(ref):
        register = record.register
        if register.path[0] == "fx":
            yield record, register.call, register.pool
        elif register.kind == "p.cmd" and "call" in record.command:
            yield record, CallId.parse(record.command["call"]), register.pool


def _command_of(record: LostRecord, call: CallId, pool: str) -> CommandDecided | None:
    """As much of a lost command as a witness knows."""
    known = record.command
    if not known:
        return None
    return CommandDecided(call, "", 0, known["agent"], pool, known["tool"], {}, known["resource"], "", "", 0)


def _check_release(found: Sequence[Finding]) -> None:
    newer = next((finding for finding in found if finding.trouble == "newer"), None)
    if newer is not None:
        raise NewerSchema(
            f"sequence {newer.sequence}: {newer.what}", hint="upgrade this process", sequence=newer.sequence
        )


def _meaning(finding: Finding, lost_anchors: Sequence[int], unclear: Sequence[Family]) -> str:
    if finding.trouble in ("lost", "gap"):
        return "what stood there is given up"
    if finding.trouble == "twice":
        return "the first record of that register counts"
    if finding.trouble == "odd":
        return "it stands as it is"
    match finding.kind:
        case "in":
            return "it counts as refused, unreadable; no turn sees it"
        case "p.anchor" if finding.sequence in lost_anchors:
            return (
                "the anchor is made anew from the last that can be read, with a run and a fence that are high enough;"
                " what this one ordered (a pause, an objective, a deletion) must be ordered again"
            )
        case "p.anchor":
            return "the anchors behind it stand"
        case "p.cmd":
            return "it never runs; a turn that it belonged to and that still runs ends failed"
        case "p.log":
            return "the conversation goes on without it; a turn that it belonged to and that still runs ends failed"
        case "fx.gate" | "fx.claim" | "fx.done":
            return _of_effect(finding, unclear)
        case _:
            return "it stays unreadable; nothing is decided on it"


def _of_effect(finding: Finding, unclear: Sequence[Family]) -> str:
    _, pool, run, step, n = finding.register.split(".")[:5]
    for family in unclear:
        if (family.pool, str(family.call)) == (pool, f"{run}.{step}.{n}"):
            return f"the effect of {family.call} is {verdict(family)}"
    return "an outcome stands behind it, and counts"


def verdict(family: Family) -> str:
    """What is recorded of a command of which nobody can tell what became of it."""
    return "unknown: a person settles it" if family.may_have_run else "refused: nobody took it up"
