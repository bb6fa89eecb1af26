"""Which records concern people, and what is said of each: the table."""

from __future__ import annotations

from dataclasses import fields as fields_of
from typing import Any

import pytest
from anchorwatch.bus.port import Stored
from anchorwatch.codec import encode, encode_anchor
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.effect.state import (
    Claimed,
    EffectEvent,
    GateAsked,
    GateDecided,
    Outcome,
    Owner,
    Released,
)
from anchorwatch.core.errors import Damaged
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.records import Kind, Record
from anchorwatch.core.session.transitions import HOLDS_TURN, TRANSITIONS
from anchorwatch.journal.effect_mapping import effect_body
from anchorwatch.journal.late import late_outcome
from anchorwatch.topology.subjects import SWITCH, SessionSubjects, matches
from anchorwatch_notifier.notices import KINDS, Notice, read_notice
from anchorwatch_notifier.worker import CONSUMER

REF = SessionRef("default", "fleet")
AT = SessionSubjects(REF)
CALL = CallId(3, 1, 2)
OWNER = Owner("executor-1", "x")


def anchor_record(kind: str, reason: str = "", **fields: Any) -> Stored:
    of_anchor = {
        name: value for name, value in fields.items() if name in {each.name for each in fields_of(Anchor)}
    }
    body = {name: value for name, value in fields.items() if name not in of_anchor}
    anchor = Anchor(workspace="default", session="fleet", agent="keeper@1", **of_anchor)
    data, _ = encode_anchor(anchor, Record(kind, 5, "w", {**body, **({"reason": reason} if reason else {})}))
    return Stored(AT.anchor(Kind(kind)), 9, 5, data)


def switch(scope: str, name: str, *, on: bool = True) -> Stored:
    data, _ = encode(Record(Kind.SWITCH, 5, "w", {"on": on, "by": "ada", "reason": "it smells"}))
    return Stored(SWITCH.at(workspace="default", scope=scope, name=name), 9, 5, data)


EMERGENCY = {"emergency": {"kind": "dead", "what": "all are dead", "since": "then", "last_seen_at": "now"}}


def emergency(change: str, kind: Kind = Kind.EMERGENCY_OBSERVED, **more: str) -> Stored:
    anchor = Anchor(workspace="default", session="fleet", agent="keeper@1")
    data, _ = encode_anchor(anchor, Record(kind, 5, "w", {"change": change, **EMERGENCY, **more}))
    return Stored(AT.anchor(kind), 9, 5, data)


def ended(outcome: str, stuck: int = 0, kind: str = Kind.TURN_ENDED, by_rules: int = 0) -> Stored:
    away: dict[str, Any] = {"away": [["far", "model_unavailable"]]} if by_rules else {}
    return anchor_record(
        kind,
        runs_by_rules=by_rules,
        **away,
        last_run_id=3,
        last_run_outcome=outcome,
        last_run_reason="why",
        runs_without_progress=stuck,
        objectives=('say "kind":"turn_ended"',),
    )


def effect_record(event: EffectEvent) -> Stored:
    register, kind, body = effect_body(event)
    data, _ = encode(Record(kind, 5, "w", body))
    return Stored(AT.effect("default", CALL, register), 9, 5, data)


def outcome(state: Any, **data: Any) -> Outcome:
    return Outcome(CALL, "launch", state, "text", data, resource="fleet", turn_id="turn_1")


def late() -> Stored:
    evidence = late_outcome(outcome("succeeded"), OWNER)
    body = {
        "call": [3, 1, 2],
        "tool": evidence.tool,
        "state": evidence.state,
        "text": evidence.text,
        "owner": ["executor-1", "x"],
        "effect_key": "",
        "turn": "turn_1",
        "resource": "fleet",
        "claim": 4,
    }
    data, _ = encode(Record(Kind.LATE, 5, "w", body))
    return Stored(AT.late(CALL), 9, 5, data)


@pytest.mark.parametrize(
    ("stored", "kinds", "severity"),
    [
        (ended("success"), ("turn_ended",), "info"),
        (ended("no_action"), ("turn_ended",), "info"),
        (ended("cancelled", kind=Kind.CANCELLED), ("turn_ended",), "info"),
        (ended("failed"), ("turn_failed", "turn_ended"), "warning"),
        (ended("unresolved", 1), ("turn_unresolved", "turn_ended"), "critical"),
        (ended("over_budget", 2), ("over_budget", "turn_ended"), "warning"),
        (ended("unresolved", 3), ("turn_unresolved", "no_progress", "turn_ended"), "critical"),
        (ended("unresolved", 4), ("turn_unresolved", "turn_ended"), "critical"),
        (ended("failed", 10), ("turn_failed", "turn_ended"), "warning"),
        (anchor_record(Kind.QUARANTINED, "damage"), ("session_quarantined",), "critical"),
        (effect_record(GateAsked("rule", "b", 1)), ("approval_wanted",), "warning"),
        (effect_record(outcome("unknown")), ("effect_unknown",), "critical"),
        (effect_record(outcome("resolved")), ("effect_resolved",), "info"),
        (
            effect_record(outcome("succeeded", notify={"title": "t", "severity": "warning"})),
            ("message",),
            "warning",
        ),
        (effect_record(outcome("succeeded", notify={"severity": "shouting"})), ("message",), "info"),
        (late(), ("late_outcome",), "warning"),
        (anchor_record(Kind.RESET, by="ada", superseded={"count": 2}), ("session_reset",), "warning"),
        (anchor_record(Kind.INPUTS_REFUSED, refused={"count": 70}), ("inputs_refused",), "warning"),
        (switch("session", "fleet"), ("kill_switch",), "warning"),
        (emergency("raised"), ("emergency",), "critical"),
        (emergency("changed"), ("emergency",), "critical"),
        (emergency("over"), ("emergency",), "info"),
        (emergency("", kind=Kind.EMERGENCY_ENDED, by="ada", reason="sold"), ("emergency",), "warning"),
        (ended("success", by_rules=1), ("model_away", "turn_ended"), "warning"),
        (ended("success", by_rules=2), ("turn_ended",), "info"),
        (
            ended("unresolved", 3, by_rules=1),
            ("turn_unresolved", "no_progress", "model_away", "turn_ended"),
            "critical",
        ),
    ],
)
def test_record_that_concerns_people_is_a_notice(
    stored: Stored, kinds: tuple[str, ...], severity: str
) -> None:
    notice = read_notice(stored)
    assert notice is not None
    assert (notice.kinds, notice.severity) == (kinds, severity)
    assert set(kinds) <= set(KINDS)
    assert (notice.ref, notice.sequence, len(notice.digest)) == (REF, 9, 64)


@pytest.mark.parametrize(
    "stored",
    [
        *(
            ended("success", kind=kind)
            for kind in (Kind.ACQUIRED, Kind.TAKEN_OVER, Kind.CREATED, Kind.DIRECTIVES)
        ),
        *(anchor_record(kind) for kind in (Kind.PAUSED, Kind.RESUMED, Kind.DELETED)),
        effect_record(Claimed(OWNER, 1, "k")),
        effect_record(GateDecided(True, "b", "ada")),  # noqa: FBT003 - a record's field
        *(effect_record(outcome(state)) for state in ("succeeded", "failed", "refused")),
        effect_record(outcome("succeeded", notify="not a map")),
        Stored(AT.log, 9, 5, b"whatever"),
        Stored(AT.input("k-1"), 9, 5, b"whatever"),
    ],
)
def test_record_that_concerns_no_person_is_not_a_notice(stored: Stored) -> None:
    assert read_notice(stored) is None


def test_streak_without_progress_is_counted_in_the_title() -> None:
    notice = read_notice(ended("unresolved", 3))
    assert notice is not None
    assert notice.title.endswith("ended unresolved; 3 turns in a row without progress")


def test_switch_notice_names_person_scope_and_session() -> None:
    of_session, of_agent = (
        read_notice(switch("session", "fleet")),
        read_notice(switch("agent", "keeper", on=False)),
    )
    assert of_session is not None
    assert of_agent is not None
    assert (of_session.session, of_agent.session) == ("fleet", None)
    assert of_session.title == "the kill switch of session fleet is on, says ada"
    assert of_agent.title == "the kill switch of agent keeper is off, says ada"
    assert of_session.text == "it smells"
    assert of_session.delivery_id("hook") != of_agent.delivery_id("hook")


def test_untrusted_record_is_not_a_notice() -> None:
    whole = ended("failed")
    with pytest.raises(Damaged):
        read_notice(Stored(whole.subject, 9, 5, whole.payload.replace(b"why", b"wha")))
    with pytest.raises(Damaged):
        read_notice(Stored(AT.effect("default", CALL, "done"), 9, 5, b"\xff"))


def test_delivery_has_one_id_for_ever_and_no_other_has_it() -> None:
    notice, again, other = (
        read_notice(ended("failed")),
        read_notice(ended("failed")),
        read_notice(ended("unresolved")),
    )
    assert isinstance(notice, Notice)
    assert isinstance(other, Notice)
    assert again is not None
    assert notice.delivery_id("hook") == again.delivery_id("hook") == f"9-hook-{notice.digest[:8]}"
    assert len({notice.delivery_id("hook"), notice.delivery_id("log"), other.delivery_id("hook")}) == 3


def test_long_texts_are_cut() -> None:
    said = {"title": "t" * 5_000, "text": "x" * 5_000}
    notice = read_notice(effect_record(outcome("succeeded", notify=said)))
    assert notice is not None
    assert (len(notice.title), len(notice.text)) == (1_000, 1_000)


def is_received(subject: str) -> bool:
    return any(matches(filter_, subject) for filter_ in CONSUMER.filters)


@pytest.mark.parametrize("kind", list(TRANSITIONS))
def test_consumer_receives_ends_and_controls_only(kind: Kind) -> None:
    assert is_received(AT.anchor(kind)) == (kind not in HOLDS_TURN)


@pytest.mark.parametrize(
    ("event", "received"),
    [
        (outcome("succeeded"), False),
        (outcome("failed"), False),
        (outcome("refused"), False),
        (outcome("unknown"), True),
        (outcome("resolved"), True),
        (outcome("succeeded", notify={"text": "hello"}), True),
        (Claimed(OWNER, 1, "key"), False),
        (Released(OWNER, "paused"), False),
        (GateAsked("rule", "binding", 9, 1), True),
    ],
)
def test_consumer_receives_effects_with_a_notice_only(event: EffectEvent, *, received: bool) -> None:
    stored = effect_record(event)
    assert is_received(stored.subject) == received
    assert (read_notice(stored) is not None) == received


@pytest.mark.parametrize("subject", [AT.log, AT.command("p"), AT.input("i"), AT.control(), AT.sent("d")])
def test_consumer_receives_no_other_register(subject: str) -> None:
    assert not is_received(subject)


def test_end_of_a_turn_says_the_words_and_whom_they_answer() -> None:
    fields: dict[str, Any] = {
        "last_run_id": 3,
        "last_run_outcome": "success",
        "last_run_reason": "launch succeeded",
        "step": {"text": "w-7 is well."},
    }
    notice = read_notice(anchor_record(Kind.TURN_ENDED, **fields, answers=[7]))
    assert notice is not None
    assert (notice.kinds, notice.severity) == (("answer", "turn_ended"), "info")
    assert notice.text == "w-7 is well.\n(launch succeeded)"
    assert (notice.data["said"], notice.data["answers"]) == ("w-7 is well.", [7])
    quiet = read_notice(anchor_record(Kind.TURN_ENDED, **fields))
    assert quiet is not None
    assert quiet.kinds == ("turn_ended",)


def test_missed_objective_is_a_warning_of_its_turn() -> None:
    fields: dict[str, Any] = {"last_run_id": 3, "last_run_outcome": "no_action", "last_run_reason": "quiet"}
    notice = read_notice(anchor_record(Kind.TURN_ENDED, **fields, missed=["proofs_per_hour >= 500"]))
    assert notice is not None
    assert (notice.kinds, notice.severity) == (("objective_missed", "turn_ended"), "warning")
    assert notice.text == "missed for 3 turns: proofs_per_hour >= 500; quiet"
