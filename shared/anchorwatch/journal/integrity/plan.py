"""From findings to a repair and its meaning. Pure."""

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
"""The number of runs that may have started after an end that no witness knows."""
_SKIPPED: Final = frozenset({"unreadable", "misplaced"})
_HARMLESS: Final = frozenset({"late", "art", "sent", "ctl"})


@dataclass(frozen=True, slots=True)
class Remedy:
    """A finding, and its meaning after the repair."""

    finding: Finding
    meaning: str

    def to_json(self) -> dict[str, Any]:
        """For people and programs."""
        return {**self.finding.to_json(), "meaning": self.meaning}


@dataclass(frozen=True, slots=True)
class Plan:
    """A repair before it is carried out.

    ``head`` and ``head_digest``: the last planner record, which the repair follows. ``believed``: the anchor with the values that
    are safe to assume. ``was``: the status before the quarantine. ``restarts``: the session did not run, and its turn ends.
    ``reloads``: loading starts after the damage. ``unclear``: the commands with an unclear outcome.
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
        """A person confirms it: it identifies this plan for the session's current records."""
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
        """The records that loading skips after the repair."""
        found = (remedy.finding for remedy in self.remedies if remedy.finding.trouble in _SKIPPED)
        return tuple(finding.sequence for finding in found if finding.kind not in _HARMLESS)

    def to_json(self) -> dict[str, Any]:
        """For people and programs."""
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
    """The repair that lets the session run again, or that accepts findings without an effect on it.

    ``gaps``: lost ends of the journal that are being accepted. If the session may have lost records there, each run and command
    that it may have started counts as started.

    Raises:
        Refused: there is nothing to repair, no readable anchor, or too many findings. NewerSchema: a newer release wrote a
        record. SessionDeleted.
    """
    examiner, found = examination.examiner, examination.open
    anchor, head = examiner.anchor, examiner.head
    _check_release(found)
    if anchor is None or head is None:
        raise Refused(
            f"{examination.ref.session} has no readable anchor: its objectives and constraints are unknown",
            hint="create a new session; the journal keeps the records of this one",
        )
    if anchor.status == "deleted":
        raise SessionDeleted(f"the session {examination.ref.session} is deleted and never runs")
    own = [each for each in gaps if examiner.first < each.first and may_have_lost(each, examination.ref)]
    stopped = bool(examination.unloadable) or anchor.status == "quarantined" or bool(own)
    if not stopped and not found:
        raise Refused(f"{examination.ref.session} has nothing to repair")
    if len(found) > FINDINGS_MAX:
        raise Refused(
            f"{examination.ref.session} has {len(found)} findings, a repair accepts at most {FINDINGS_MAX}",
            hint="restore an older copy of the server's data",
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
    """Add the anchors that the gaps may have contained; a turn that one of them may have started counts as run."""
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
    """The commands that may have started and have no known outcome, without reads, which have no effect."""
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
    """The lost records of a session's commands, each with the command and its pool."""
    for record in gap.of_session(ref):
        register = record.register
        if register.path[0] == "fx":
            yield record, register.call, register.pool
        elif register.kind == "p.cmd" and "call" in record.command:
            yield record, CallId.parse(record.command["call"]), register.pool


def _command_of(record: LostRecord, call: CallId, pool: str) -> CommandDecided | None:
    """A lost command, with the fields that a witness knows."""
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
        return "the lost record is given up"
    if finding.trouble == "twice":
        return "the first record of the register counts"
    if finding.trouble == "odd":
        return "the record is accepted unchanged"
    match finding.kind:
        case "in":
            return "the input counts as refused (unreadable); no turn sees it"
        case "p.anchor" if finding.sequence in lost_anchors:
            return (
                "the anchor is rebuilt from the last readable one, with a run and a fence that are high enough;"
                " orders in this record (a pause, an objective, a deletion) must be repeated"
            )
        case "p.anchor":
            return "later anchors replace it"
        case "p.cmd":
            return "the command never runs; if its turn is still active, the turn ends as failed"
        case "p.log":
            return (
                "the conversation continues without it; if its turn is still active, the turn ends as failed"
            )
        case "fx.gate" | "fx.claim" | "fx.done":
            return _of_effect(finding, unclear)
        case _:
            return "it stays unreadable; no decision depends on it"


def _of_effect(finding: Finding, unclear: Sequence[Family]) -> str:
    _, pool, run, step, n = finding.register.split(".")[:5]
    for family in unclear:
        if (family.pool, str(family.call)) == (pool, f"{run}.{step}.{n}"):
            return f"the effect of {family.call} is {verdict(family)}"
    return "a later outcome counts"


def verdict(family: Family) -> str:
    """The recorded outcome of a command whose outcome is unclear."""
    return "unknown: a person resolves it" if family.may_have_run else "refused: no executor started it"
