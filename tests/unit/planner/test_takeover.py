"""When a planner may take over a turn of another planner: with each kind of evidence, and not without."""

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


def test_redelivery_of_the_holder_s_message_is_evidence() -> None:
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
def test_other_deliveries_are_not_evidence(cause: Cause) -> None:
    assert takeover_reason(turn(SETTLED), [cause], holder_gone=False) is None


def test_newer_outcome_that_settles_the_step_is_evidence() -> None:
    newer, older = Cause("done", 12), Cause("done", 9, attempt=5)
    assert takeover_reason(turn(SETTLED), [newer], holder_gone=False)
    assert takeover_reason(turn(WAITING), [newer], holder_gone=False) is None
    assert takeover_reason(turn(SETTLED), [older], holder_gone=False) is None


def test_outcome_of_an_earlier_turn_is_not_evidence() -> None:
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


def test_handled_causes_are_acked_while_another_planner_runs() -> None:
    again, done = Cause("in", 6, attempt=2), Cause("done", 12)
    assert left_to_holder(turn(), [again, done]) == LeftToHolder(7, REPLACED_RETRY_S)
    assert left_to_holder(turn(), [again.after_turn(), done.after_turn()]) == LeftToHolder(7, None)


def test_holder_without_presence_is_replaced() -> None:
    assert takeover_reason(turn(), [Cause("sweep")], holder_gone=True)


def test_execution_id_names_the_holder() -> None:
    assert holder("planner-1:0af3") == ("planner-1", "0af3")
    assert holder("") == ("", "")
