"""Going in circles: the same decision on the same sight, turn after turn."""

from __future__ import annotations

from anchorwatch.core.names import CallId
from anchorwatch.core.session.commands import CommitStep, PlannedCall
from anchorwatch.core.session.cycling import circles
from anchorwatch.core.session.events import StepHead
from anchorwatch.core.session.state import SeenObservation

from tests.unit.core.test_session_machine import ME, Story, acquire, created, end

ACTING = frozenset({"restart"})


def turn(story: Story, tool: str = "restart", digest: str = "seen", target: str = "a") -> Story:
    story.input().do(acquire(story))
    head = StepHead(1, "", SeenObservation(digest, 0, "seen"), None, calls=1)
    story.do(CommitStep(ME, head, (PlannedCall(1, tool, {"target": target}, "", "default", "r"),)))
    assert story.state.turn is not None
    return story


def over(story: Story) -> Story:
    turn_ = story.state.turn
    assert turn_ is not None
    return story.outcome(CallId(turn_.run_id, 1, 1)).do(end())


def test_same_decision_on_the_same_facts_is_counted_by_turn() -> None:
    story = created()
    for count in range(1, 7):
        assert circles(turn(story).state, ACTING) == count
        over(story)


def test_other_facts_or_target_or_no_decision_restart_the_count() -> None:
    for other in ({"digest": "new"}, {"target": "b"}, {"tool": "look"}):
        story = over(turn(over(turn(created()))))
        over(turn(story, **other))
        assert circles(turn(story).state, ACTING) == 1


def test_repeated_observation_or_unseen_facts_are_not_a_circle() -> None:
    story = over(turn(over(turn(created(), "look")), "look"))
    assert circles(turn(story, "look").state, ACTING) == 0
    blind = over(turn(over(turn(created(), digest="")), digest=""))
    assert circles(turn(blind, digest="").state, ACTING) == 0
