"""When a planner may take over a turn that another holds: each kind of evidence, and none without it."""

from __future__ import annotations

import pytest
from anchorwatch.bus.port import Stored
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.session.state import Call, Step, Turn
from anchorwatch.topology.subjects import DONE, SessionSubjects
from anchorwatch_planner.takeover import (
    REPLACED_RETRY_S,
    Cause,
    LeftToHolder,
    holder,
    left_to_holder,
    takeover_reason,
)

SETTLED = Step(1, "", (Call(1, "launch", {}, state="succeeded"),))
WAITING = Step(1, "", (Call(1, "launch", {}, state="succeeded"), Call(2, "launch", {})))


def turn(*steps: Step, held_since: int = 10, woken_by: int = 7) -> Turn:
    return Turn(1, "turn_1", 0, held_since, woken_by, (), steps)


def test_the_message_that_its_planner_holds_came_again() -> None:
    assert takeover_reason(turn(), [Cause("in", 7, attempt=2)], holder_gone=False)


@pytest.mark.parametrize(
    "cause",
    [
        Cause("in", 7, attempt=1),
        Cause("in", 8, attempt=2),
        Cause("in", 11, attempt=1),
        Cause("control", 11, attempt=3),
        Cause("tick", 0, attempt=2),
        Cause("sweep"),
        Cause("in", 7, attempt=2).after_turn(),
        Cause("done", 12).after_turn(),
        Cause("resumed", 12).after_turn(),
    ],
)
def test_nothing_else_that_is_delivered_is_evidence(cause: Cause) -> None:
    assert takeover_reason(turn(SETTLED), [cause], holder_gone=False) is None


def test_an_outcome_newer_than_the_acquire_counts_once_the_step_is_settled() -> None:
    newer, older = Cause("done", 12), Cause("done", 9, attempt=5)
    assert takeover_reason(turn(SETTLED), [newer], holder_gone=False)
    assert takeover_reason(turn(WAITING), [newer], holder_gone=False) is None
    assert takeover_reason(turn(SETTLED), [older], holder_gone=False) is None


def test_an_outcome_of_an_earlier_turn_is_no_evidence_about_this_one() -> None:
    subjects = SessionSubjects(SessionRef("default", "fleet"))
    of_this, of_another = (
        Cause("done", 12, stored=Stored(subjects.effect("default", CallId(run, 1, 1), DONE), 12, 0, b""))
        for run in (1, 9)
    )
    assert takeover_reason(turn(SETTLED), [of_this], holder_gone=False)
    assert takeover_reason(turn(SETTLED), [of_another], holder_gone=False) is None


def test_two_planners_do_not_take_over_from_each_other_for_ever() -> None:
    """The takeover is newer than the outcome that it acted on, so the same outcome is no evidence against the new holder."""
    after_takeover = turn(SETTLED, held_since=13, woken_by=12)
    assert takeover_reason(after_takeover, [Cause("done", 11, attempt=2)], holder_gone=False) is None
    assert takeover_reason(after_takeover, [Cause("done", 12, attempt=2)], holder_gone=False), (
        "its own message came again"
    )


def test_what_was_seen_to_by_a_turn_that_has_ended_does_not_come_again_while_another_planner_goes_on() -> (
    None
):
    again, done = Cause("in", 6, attempt=2), Cause("done", 12)
    assert left_to_holder(turn(), [again, done]) == LeftToHolder(7, REPLACED_RETRY_S)
    assert left_to_holder(turn(), [again.after_turn(), done.after_turn()]) == LeftToHolder(7, None)


def test_a_holder_that_is_gone() -> None:
    assert takeover_reason(turn(), [Cause("sweep")], holder_gone=True)


def test_the_holder_is_in_the_execution_id() -> None:
    assert holder("planner-1:0af3") == ("planner-1", "0af3")
    assert holder("") == ("", "")
