"""The checks of a run: none fails for a correct run, and each violation is found and named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from anchorwatch.core.anchor import Fence
from anchorwatch.core.effect.state import Claimed, EffectEvent, Owner
from anchorwatch.core.names import CallId
from anchorwatch.core.records import Kind
from anchorwatch.core.session.apply import Recorded
from anchorwatch.core.session.events import AnchorChanged, CommandDecided, Event, StepHead
from anchorwatch.core.tools import EffectClass
from anchorwatch.journal.history import DeliveryRecord, History, LateRecord
from anchorwatch.journal.late import LateOutcome
from anchorwatch.testing.checks import Arrivals, Call, Evidence, at_rest, check

from tests.unit.cli.demo import incident

KEY = incident.KEY
TOOL = "launch_instances"


def correct() -> Evidence:
    """The evidence of a correct run."""
    history = incident.kept_history()
    made = Recorded(1, AnchorChanged(Kind.CREATED, history.anchors[0].anchor, 0), "d1")
    return Evidence(
        history=replace(history, chain=(made,)),
        accepted=(5, 6),
        events=("ev-5",),
        classes={TOOL: EffectClass.RECONCILABLE},
        calls={KEY: Call(KEY, begun=2, ended=("returned",), done=1)},
        arrivals=(Arrivals("demo", {"4-demo-aaaa": 1, "14-demo-bbbb": 2}, deduplicates=True),),
    )


def with_history(**changes: Any) -> Evidence:
    return replace(correct(), history=replace(correct().history, **changes))


def with_call(state: str = "succeeded", error: str = "", owners: int = 2, **call: object) -> Evidence:
    history = correct().history
    done = replace(history.outcomes[0].outcome, state=state, error=error)  # type: ignore[arg-type]  # one of its states
    return Evidence(
        history=replace(
            history, claims=history.claims[:owners], outcomes=(replace(history.outcomes[0], outcome=done),)
        ),
        classes={TOOL: EffectClass.IRREVERSIBLE},
        calls={KEY: replace(Call(KEY, begun=1, ended=("returned",), done=1), **call)},  # type: ignore[arg-type]
    )


def without_kind(kind: str) -> tuple[object, ...]:
    return tuple(each for each in correct().history.anchors if each.kind != kind)


def test_correct_run_has_no_violation() -> None:
    assert check(correct()) == []


@pytest.mark.parametrize(
    ("evidence", "promise", "what"),
    [
        (replace(correct(), accepted=(5, 99)), "lost", "accepted at 99"),
        (replace(correct(), events=("ev-7",)), "lost", "the event ev-7"),
        (with_history(inputs=(*correct().history.inputs, incident.event(90))), "lost", "no turn took the input ev-90"),
        (with_history(anchors=without_kind(Kind.TURN_ENDED)), "lost", "run 1 has no end"),
        (with_history(outcomes=()), "lost", "2.1.1 has no outcome"),
        (with_history(outcomes=correct().history.outcomes * 2), "duplicated", "has 2 outcomes"),
        (with_history(commands=correct().history.commands * 2), "duplicated", "was decided 2 times"),
        (with_history(commands=()), "guessed", "which no planner decided"),
        (with_history(anchors=correct().history.anchors[::-1]), "lost", "the runs are [2, 1]"),
        (with_call(done=2), "duplicated", "was done 2 times"),
        (with_call(begun=2, ended=(), done=1), "duplicated", "irreversible, but was started 2 times"),
        (with_call(done=0), "guessed", "recorded as succeeded, but was not done"),
        (with_call("failed", done=1), "guessed", "recorded as failed, but was done"),
        (with_call("refused", done=None), "guessed", "recorded as refused, but was started"),
        (with_call("unknown", owners=1), "guessed", "its executor observed its end"),
        (replace(correct(), calls={"other": Call("other", begun=1)}), "guessed", "which no command has"),
        (replace(correct(), arrivals=(Arrivals("demo", {"4-demo-aaaa": 1}, deduplicates=True),)), "lost", "the end at 14"),
        (
            replace(correct(), arrivals=(Arrivals("demo", {"4-demo-a": 1, "14-demo-b": 1, "14-demo-c": 1}, deduplicates=True),)),
            "duplicated",
            "under 2 ids",
        ),
        (
            replace(correct(), arrivals=(Arrivals("demo", {"4-demo-a": 1, "14-demo-b": 2}, deduplicates=False),)),
            "duplicated",
            "delivered more than once",
        ),
        (with_history(sent=()), "lost", "delivered, but not recorded"),
    ],
)  # fmt: skip
def test_violation_is_found_and_named(evidence: Evidence, promise: str, what: str) -> None:
    found = check(evidence)
    assert any(each.promise == promise and what in each.what for each in found), list(map(str, found))


@pytest.mark.parametrize(
    "evidence",
    [
        with_call("unknown", error="owner_died", owners=1),
        with_call("unknown", owners=1, ended=("raised",), done=None),
        with_call("unknown", owners=1, ended=(), done=0),
        with_call("unknown", owners=2),
    ],
    ids=["its owner died", "its tool could not say", "it was killed in the call", "it changed hands"],
)
def test_uncertain_effect_may_be_unknown(evidence: Evidence) -> None:
    assert check(evidence) == []


CALL = incident.CALL
OWNER = Owner("executor-1", "x")


def anchors(at: int, **changes: Any) -> Evidence:
    """Evidence with changed fields in one anchor."""
    records = list(correct().history.anchors)
    records[at] = replace(records[at], anchor=replace(records[at].anchor, **changes))
    return with_history(anchors=tuple(records))


def chained(*events: Event) -> Evidence:
    """Evidence with a chain of these records and correct digests."""
    return with_history(
        chain=tuple(Recorded(n, event, f"d{n}", f"d{n - 1}" if n else "") for n, event in enumerate(events))
    )


def decided(n: int, step: int, generation: int = 2) -> CommandDecided:
    head = StepHead(step, "", None, None)
    return replace(
        correct().history.commands[0].decided, call=CallId(2, step, n), generation=generation, head=head
    )


def held() -> AnchorChanged:
    record = correct().history.anchors[3]
    return AnchorChanged(record.kind, replace(record.anchor, status="active"), 1)


def family(*records: tuple[int, EffectEvent], **changes: Any) -> Evidence:
    return with_history(families={CALL: records}, **changes)


DONE = correct().history.outcomes[0].outcome
RESOLVED, UNKNOWN = replace(DONE, state="resolved"), replace(DONE, state="unknown")
FENCED = (*correct().history.anchors[:4], replace(correct().history.anchors[5], sequence=9))
LATE = LateRecord(12, LateOutcome(CALL, TOOL, "succeeded", "", OWNER, KEY, "turn_x"))


@pytest.mark.parametrize(
    ("evidence", "what"),
    [
        (with_history(chain=(Recorded(1, held(), "a"), Recorded(2, held(), "b", "z"))), "does not follow"),
        (anchors(3, generation=4), "the generation grew by 3 at 8"),
        (anchors(4, fence=Fence(run=1)), "the fence decreased at 12"),
        (anchors(4, inputs_through=1), "the mark of consumed inputs decreased at 12"),
        (anchors(5, fence=Fence(run=2)), "was not running, or set no fence"),
        (anchors(2, turn=incident.turn(2, 2)), "run 2 began at 8 while run 1 was running"),
        (anchors(4, turn=incident.turn(7, 6)), "changed the turn"),
        (chained(held(), decided(1, 1), decided(1, 1)), "the steps of run 2 are [1, 1]"),
        (chained(held(), decided(1, 1, generation=1)), "a planner that did not hold the turn"),
        (family((10, Claimed(OWNER, 1, KEY)), (12, DONE), (13, DONE)), "ended succeeded, but has another record at 13"),
        (family((12, UNKNOWN), (13, DONE)), "ended unknown, but has another record at 13"),
        (family((8, Claimed(OWNER, 1, KEY))), "before it was decided"),
        (family((10, Claimed(OWNER, 1, KEY)), anchors=FENCED), "claimed at 10, after its fence at 9"),
        (with_history(late=(LATE,)), "follows no other claim or outcome"),
        (with_history(sent=(*correct().history.sent, DeliveryRecord(17, 1, "4-demo-aaaa", "sent"))), "another record at 17"),
    ],
)  # fmt: skip
def test_record_of_a_stale_process_is_a_violation(evidence: Evidence, what: str) -> None:
    assert any(what in each.what for each in check(evidence)), list(map(str, check(evidence)))


def test_unknown_outcome_may_be_resolved_later() -> None:
    claim = Claimed(OWNER, 1, KEY)
    assert check(family((10, claim), (12, UNKNOWN), (13, claim), (14, RESOLVED))) == []


def last_anchor(**changes: Any) -> Callable[[History], History]:
    def change(history: History) -> History:
        last = history.anchors[-1]
        anchor = replace(last.anchor, **changes)
        return replace(history, anchors=(*history.anchors[:-1], replace(last, anchor=anchor)))

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda _: History(),
        last_anchor(status="active"),
        last_anchor(inputs_through=6),
        lambda history: replace(history, outcomes=()),
        lambda history: replace(history, sent=history.sent[:1]),
        lambda history: replace(history, sent=(*history.sent[:1], DeliveryRecord(9, 1, "14-demo-bbbb", "claimed"))),
    ],
    ids=["nothing", "a turn runs", "an input waits", "a command is open", "a delivery is missing", "a delivery is claimed"],
)  # fmt: skip
def test_session_with_open_work_is_not_at_rest(change: Callable[[History], History]) -> None:
    assert at_rest(correct().history, 7, ["demo"])
    assert not at_rest(correct().history, 15, ["demo"])
    assert not at_rest(change(correct().history), 7, ["demo"])
