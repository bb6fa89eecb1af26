"""What a command's effect is called, and what must be settled before it: from intents, whatever the model said."""

from __future__ import annotations

import re

from anchorwatch.core.effect.intent import KEY_CHARS_MAX, intent_key
from anchorwatch.core.names import CallId
from anchorwatch.core.records import Kind
from anchorwatch.core.session import SessionState, replay
from anchorwatch.core.session.commands import CommitStep, Control, PlannedCall, TakeOver
from anchorwatch.core.session.events import CommandDecided, StepHead
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.test_session_machine import ME, OTHER, Story, acquire, created, end

NAMES = st.from_regex(r"[a-z0-9][a-z0-9-]{0,62}", fullmatch=True)
FIRST, SECOND, THIRD = CallId(1, 1, 1), CallId(1, 1, 2), CallId(1, 2, 1)


def call(n: int = 1, tool: str = "stop", resource: str = "w-1", **more: object) -> PlannedCall:
    return PlannedCall(n, tool, more.pop("args", {}), "", "default", resource, **more)  # type: ignore[arg-type]


def step(number: int, *calls: PlannedCall, text: str = "", who: str = ME) -> CommitStep:
    return CommitStep(who, StepHead(number, text, None, None, calls=len(calls)), calls)


def begun() -> Story:
    story = created()
    return story.do(acquire(story))


def commands(story: Story) -> list[CommandDecided]:
    return [record.event for record in story.records if isinstance(record.event, CommandDecided)]


def keys(story: Story) -> list[str]:
    return [each.effect_key for each in commands(story)]


def after(story: Story) -> list[list[CallId]]:
    return [[each.call for each in command.after] for command in commands(story)]


@given(NAMES, NAMES, st.integers(1, 10**9), st.text())
def test_any_provider_can_take_a_key_as_a_label(
    workspace: str, session: str, run: int, resource: str
) -> None:
    key = intent_key(workspace, session, (run, "d"), ("stop", resource), 0)
    assert len(key) <= KEY_CHARS_MAX
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", key)


def test_intent_keys_differ_for_different_intents() -> None:
    made = [
        intent_key("default", "fleet", (1, "d1"), ("stop", "w-1"), 0),
        intent_key("default", "fleet", (1, "another mesh, or one begun anew"), ("stop", "w-1"), 0),
        intent_key("default-fleet", "x", (1, "d1"), ("stop", "w-1"), 0),
        intent_key("default", "fleet", (2, "d1"), ("stop", "w-1"), 0),
        intent_key("default", "fleet", (1, "d1"), ("start", "w-1"), 0),
        intent_key("default", "fleet", (1, "d1"), ("stop", "w-2"), 0),
        intent_key("default", "fleet", (1, "d1"), ("stop", "w-1"), 1),
        intent_key("default", "fleet", (1, "d1"), ("stop\x1fw", "-1"), 0),
    ]
    assert len(set(made)) == len(made)


def test_replanned_turn_in_other_words_has_the_same_keys() -> None:
    """The first plan was never committed: its planner died, and the next one asks again."""
    plain = begun().do(step(1, call(args={"grace_s": 5})))
    other = begun().do(TakeOver(OTHER, 2, 5, "gone"))
    reworded = [call(1, "look", "w-1", mutating=False), call(3, args={"grace_s": 60})]
    other.do(step(1, *reworded, text="on second thought", who=OTHER))
    assert keys(other)[1] == keys(plain)[0]


def test_same_intent_twice_is_two_effects_also_within_a_step() -> None:
    story = begun().do(step(1, call(1), call(2), call(3, resource="w-2")))
    for n in (1, 2, 3):
        story.outcome(CallId(1, 1, n))
    story.do(step(2, call()))
    assert len(set(keys(story))) == 4


def test_tool_intent_key_replaces_the_tool_name() -> None:
    one = begun().do(step(1, call(tool="power", verb="stop")))
    other = begun().do(step(1, call(tool="instances", verb="stop")))
    assert keys(one) == keys(other)


def test_command_waits_for_the_earlier_ones_on_its_resource() -> None:
    story = begun().do(step(1, call(1), call(2), call(3, resource="w-2"), call(4, "look", mutating=False)))
    assert after(story) == [[], [FIRST], [], []]


def test_command_with_no_shared_resource_waits_for_nothing() -> None:
    assert after(begun().do(step(1, call(1, resource=""), call(2, resource="")))) == [[], []]


def test_effect_with_a_definite_outcome_is_not_awaited() -> None:
    story = begun().do(step(1, call(1), call(2)))
    story.outcome(FIRST, "failed").outcome(SECOND, "refused").do(step(2, call()))
    assert after(story)[2] == []


def test_unknown_effect_is_awaited_in_later_turns_until_resolved() -> None:
    story = (
        begun().do(step(1, call())).outcome(FIRST, "unknown").do(step(2, call())).outcome(THIRD, "refused")
    )
    story.do(end())
    story.do(acquire(story)).do(step(1, call())).outcome(CallId(2, 1, 1), "refused")
    story.outcome(FIRST, "resolved").do(step(2, call()))
    assert after(story) == [[], [FIRST], [FIRST], []]


def test_effect_of_a_cancelled_turn_is_awaited() -> None:
    story = begun().do(step(1, call())).do(Control(Kind.CANCELLED, "person", 6))
    story.do(acquire(story)).do(step(1, call()))
    assert after(story)[1] == [FIRST]


def test_late_outcome_is_seen_in_the_conversation() -> None:
    story = begun().do(step(1, call())).outcome(FIRST, "unknown").do(end()).outcome(FIRST, "resolved")
    assert [each.state for each in story.state.history[0].steps[0].calls] == ["resolved"]
    again = replay(SessionState(), story.records).reading_through(story.sequence)
    assert again == story.state
