"""Notices from journal records. Pure: a record gives at most one notice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from anchorwatch.bus.port import Stored
from anchorwatch.codec import decode, decode_anchor
from anchorwatch.core.anchor import Anchor, RunOutcome
from anchorwatch.core.effect.state import GateAsked, Outcome
from anchorwatch.core.emergency import OpenEmergency
from anchorwatch.core.errors import Damaged
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind, Record
from anchorwatch.core.session.goals import MISSED_RUNS
from anchorwatch.core.session.pacing import NO_PROGRESS_RUNS
from anchorwatch.core.times import iso
from anchorwatch.journal.effect_mapping import read_effect
from anchorwatch.journal.late import LateOutcome
from anchorwatch.journal.reading import read
from anchorwatch.journal.switches import read_switch
from anchorwatch.journal.truncation import read_hold
from anchorwatch.topology.subjects import Register, parse_register

NoticeKind = Literal[
    "turn_ended",
    "answer",
    "turn_failed",
    "turn_unresolved",
    "over_budget",
    "budget_warning",
    "objective_missed",
    "no_progress",
    "emergency",
    "model_away",
    "inputs_refused",
    "approval_wanted",
    "effect_unknown",
    "effect_resolved",
    "late_outcome",
    "session_quarantined",
    "session_reset",
    "kill_switch",
    "journal_lost",
    "dead_letter",
    "message",
]
KINDS: tuple[NoticeKind, ...] = get_args(NoticeKind)
Severity = Literal["info", "warning", "critical"]
CRITICAL: frozenset[NoticeKind] = frozenset({
    "turn_unresolved", "no_progress", "emergency", "effect_unknown", "session_quarantined", "journal_lost", "dead_letter"
})  # fmt: skip
"""The kinds whose notices may be critical; a message is as severe as the agent says."""
TEXT_CHARS_MAX = 1_000
_BAD: Mapping[RunOutcome, tuple[NoticeKind, Severity]] = {
    "failed": ("turn_failed", "warning"),
    "over_budget": ("over_budget", "warning"),
    "unresolved": ("turn_unresolved", "critical"),
}
NO_SESSION = "_letters"
"""Where deliveries are recorded that concern no session: of letters, and of kill switches. No session can bear this name."""
_DIGEST_CHARS = 8


@dataclass(frozen=True, slots=True)
class Notice:
    """What happened, for people. ``kinds``: the most particular first; ``data``: ids for programs.

    ``stream``: of the record, if it is not the journal. A notice without a session has the ``ref`` `NO_SESSION`.
    """

    ref: SessionRef
    sequence: int
    at_ms: int
    digest: str
    kinds: tuple[NoticeKind, ...]
    severity: Severity
    title: str
    text: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    stream: str = ""

    @property
    def session(self) -> str | None:
        """The session that it concerns, if any."""
        return None if self.ref.session == NO_SESSION else self.ref.session

    def delivery_id(self, channel: str) -> str:
        """The id of this notice on a channel. The record's digest distinguishes two meshes with one receiver."""
        id_ = f"{self.sequence}-{channel}-{self.digest[:_DIGEST_CHARS]}"
        return f"{self.stream.lower()}-{id_}" if self.stream else id_

    def content(self) -> dict[str, Any]:
        """The notice as data."""
        return {
            "workspace": self.ref.workspace,
            "session": self.session,
            "record": self.sequence,
            "at": iso(self.at_ms),
            "kinds": list(self.kinds),
            "severity": self.severity,
            "title": self.title,
            "text": self.text,
            **self.data,
        }


def read_notice(stored: Stored) -> Notice | None:
    """The notice in a journal record; None: nothing to notify.

    Raises:
        Damaged: the record cannot be trusted. BadInput: its subject is not a journal subject.
    """
    register = parse_register(stored.subject)
    try:
        match register.kind:
            case "p.anchor":
                return _of_anchor(register, stored)
            case "fx.done" | "fx.gate":
                return _of_effect(register, stored)
            case "late":
                return _of_late(register, stored)
            case "switch":
                return _of_switch(register, stored)
            case _:
                return None
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise Damaged(f"sequence {stored.sequence}: a field is missing or odd: {error!r}"[:300]) from None


def _of_anchor(register: Register, stored: Stored) -> Notice | None:
    anchor, record = decode_anchor(stored.payload)
    if record.kind == Kind.QUARANTINED:
        title = f"{anchor.session}: quarantined"
        text = _clip(record.body.get("reason", ""))
        return _notice(register, stored, record, ("session_quarantined",), "critical", title, text)
    if record.kind == Kind.RESET:
        return _of_reset(register, stored, anchor, record)
    if record.kind == Kind.INPUTS_REFUSED:
        count = record.body["refused"]["count"]
        title = f"{anchor.session}: {count} inputs refused"
        text = _clip(record.body.get("reason", ""))
        data = {"count": count, "agent": anchor.agent}
        return _notice(register, stored, record, ("inputs_refused",), "warning", title, text, data)
    if record.kind in (Kind.EMERGENCY_OBSERVED, Kind.EMERGENCY_ENDED):
        return _of_emergency(register, stored, anchor, record)
    if record.kind in (Kind.TURN_ENDED, Kind.CANCELLED):
        return _turn_ended(register, stored, anchor, record)
    return None


def _of_emergency(register: Register, stored: Stored, anchor: Anchor, record: Record) -> Notice:
    """Of an observation, before a model is called, or of the person who ended the emergency."""
    emergency = OpenEmergency(**record.body["emergency"])
    session, what = anchor.session, emergency.what
    data = {"agent": anchor.agent, "emergency": record.body["emergency"]}
    if record.kind == Kind.EMERGENCY_ENDED:
        by = str(record.body.get("by", ""))
        title = f"{session}: emergency ended by {by}: {what}"
        data |= {"change": "ended", "by": by}
        reason = str(record.body.get("reason", ""))
        return _notice(register, stored, record, ("emergency",), "warning", title, reason, data)
    change = str(record.body["change"])
    data |= {"change": change}
    if change == "over":
        title, text = f"{session}: emergency over: {what}", f"it lasted since {emergency.since}"
        return _notice(register, stored, record, ("emergency",), "info", title, text, data)
    title = f"{session}: EMERGENCY: {what}" if change == "raised" else f"{session}: EMERGENCY changed: {what}"
    text = f"since {emergency.since}"
    if anchor.runs_by_rules:
        text += (
            f"; no language model answers, and the pack's rules decide (turns so far: {anchor.runs_by_rules})"
        )
    return _notice(register, stored, record, ("emergency",), "critical", title, text, data)


def _of_reset(register: Register, stored: Stored, anchor: Anchor, record: Record) -> Notice:
    by, reason = str(record.body.get("by", "")), str(record.body.get("reason", ""))
    disposed = int(record.body.get("superseded", {}).get("count", 0))
    data = {"by": by, "agent": anchor.agent, "disposed": disposed, "reset_count": anchor.reset_count}
    title = f"{anchor.session}: its conversation was reset by {by}"
    text = f"{disposed} pending inputs were disposed of" + (f": {reason}" if reason else "")
    return _notice(register, stored, record, ("session_reset",), "warning", title, text, data)


def _of_switch(register: Register, stored: Stored) -> Notice:
    switch, record = read_switch(stored), decode(stored.payload)
    if switch.is_journal_hold:
        return _of_mesh(register, stored, record)
    session = switch.name if switch.scope == "session" else NO_SESSION
    told = replace(register, ref=replace(register.ref, session=session))
    data = {"scope": switch.scope, "name": switch.name, "on": switch.on, "by": switch.by}
    title = f"{switch}, says {switch.by}"
    return _notice(told, stored, record, ("kill_switch",), "warning", title, switch.reason, data)


def _of_mesh(register: Register, stored: Stored, record: Record) -> Notice:
    hold = read_hold(stored)
    told = replace(register, ref=replace(register.ref, session=NO_SESSION))
    ranges = ", ".join(f"{each.first} to {each.through}" for each in hold.gaps)
    data = {
        "on": hold.on,
        "by": hold.by,
        "gaps": [[each.first, each.through] for each in hold.gaps],
    }
    if not hold.on:
        title = f"the loss of the journal's records {ranges} is accepted by {hold.by}; the mesh continues"
        return _notice(told, stored, record, ("journal_lost",), "warning", title, hold.note, data)
    title = f"the journal lost the records {ranges}: nothing starts"
    text = "What was done there may be unknown. `anchorwatch journal accept` shows the loss, and lets the mesh continue."
    return _notice(told, stored, record, ("journal_lost",), "critical", title, text, data)


def _turn_ended(register: Register, stored: Stored, anchor: Anchor, record: Record) -> Notice:
    outcome = anchor.last_run_outcome or "failed"
    kinds: list[NoticeKind] = []
    severity: Severity = "info"
    if outcome in _BAD:
        kind, severity = _BAD[outcome]
        kinds.append(kind)
    stuck = anchor.runs_without_progress
    title = f"{anchor.session}: turn {anchor.last_run_id} ended {outcome}"
    # Once a streak; the end of each turn has its own notice.
    if stuck == NO_PROGRESS_RUNS and outcome in _BAD:
        kinds.append("no_progress")
        severity = "critical"
        title += f"; {stuck} turns in a row without progress"
    text = anchor.last_run_reason
    if away := record.body.get("away"):
        models = ", ".join(f"{name} ({code})" for name, code in away)
        title += f"; the pack's rules decided, since no language model answers: {models}"
        # Once an outage, too.
        if anchor.runs_by_rules == 1:
            kinds.append("model_away")
            severity = "warning" if severity == "info" else severity
    if warning := str(record.body.get("warning", "")):
        kinds.append("budget_warning")
        severity = "warning" if severity == "info" else severity
        text = f"{warning}; {text}"
    data: dict[str, Any] = {"run": anchor.last_run_id, "outcome": outcome, "agent": anchor.agent}
    if missed := record.body.get("missed"):
        kinds.append("objective_missed")
        severity = "warning" if severity == "info" else severity
        data["missed"] = list(missed)
        text = f"missed for {MISSED_RUNS} turns: {'; '.join(map(str, missed))}; {text}"
    if said := str(record.body.get("step", {}).get("text", "")).strip():
        data["said"] = _clip(said)
        text = f"{said}\n({text})"
    if answers := record.body.get("answers"):
        data["answers"] = list(answers)
        kinds.append("answer")
    kinds.append("turn_ended")
    return _notice(register, stored, record, tuple(kinds), severity, title, text, data)


def _of_effect(register: Register, stored: Stored) -> Notice | None:
    event, record = read_effect(stored), decode(stored.payload)
    call = f"{register.ref.session}/{register.call}"
    match event:
        case GateAsked():
            title = f"{call} waits for an approval"
            data = {"call": call, "rule": event.rule, "expires_at": iso(event.expires_at_ms)}
            return _notice(register, stored, record, ("approval_wanted",), "warning", title, event.rule, data)
        case Outcome(state="unknown"):
            title = f"{call}: the outcome of {event.tool} is unknown"
            data = {"call": call, "tool": event.tool, "resource": event.resource, "turn": event.turn_id}
            way_out = f"`anchorwatch effects resolve {call} done|not-done`"
            text = f"{event.text}. Its resource is blocked until it is settled: {way_out}"
            return _notice(register, stored, record, ("effect_unknown",), "critical", title, text, data)
        case Outcome(state="resolved"):
            title = f"{call}: the outcome of {event.tool} is settled"
            data = {
                "call": call,
                "tool": event.tool,
                "resource": event.resource,
                "turn": event.turn_id,
                "by": event.by,
            }
            return _notice(register, stored, record, ("effect_resolved",), "info", title, event.text, data)
        case Outcome() if isinstance(event.data.get("notify"), Mapping):
            return _message(register, stored, record, event, call)
        case _:
            return None


def _message(register: Register, stored: Stored, record: Record, event: Outcome, call: str) -> Notice:
    said = event.data["notify"]
    severity: Severity = said["severity"] if said.get("severity") in ("warning", "critical") else "info"
    title = _clip(said.get("title") or f"{register.ref.session} says")
    data = {"call": call, "tool": event.tool, "turn": event.turn_id}
    return _notice(register, stored, record, ("message",), severity, title, str(said.get("text", "")), data)


def _of_late(register: Register, stored: Stored) -> Notice:
    record, late = read(stored, LateOutcome)
    call = f"{register.ref.session}/{late.call}"
    title = f"{call}: {late.tool} {late.state}, after its outcome was recorded"
    data = {"call": call, "tool": late.tool, "state": late.state, "owner": late.owner.instance}
    return _notice(register, stored, record, ("late_outcome",), "warning", title, late.text, data)


def _notice(
    register: Register,
    stored: Stored,
    record: Record,
    kinds: tuple[NoticeKind, ...],
    severity: Severity,
    title: str,
    text: str,
    data: Mapping[str, Any] | None = None,
) -> Notice:
    return Notice(
        ref=register.ref,
        sequence=stored.sequence,
        at_ms=record.at_ms,
        digest=record.digest,
        kinds=kinds,
        severity=severity,
        title=_clip(title),
        text=_clip(text),
        data=data or {},
    )


def _clip(text: object) -> str:
    line = str(text)
    return line if len(line) <= TEXT_CHARS_MAX else f"{line[: TEXT_CHARS_MAX - 1]}…"
