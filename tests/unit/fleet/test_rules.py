from __future__ import annotations

from typing import Any

import pytest
from anchorwatch.core.facts import Observation
from anchorwatch.models.port import PastCall, StepDecision
from anchorwatch_fleet import PACK
from anchorwatch_fleet.config import default_agent
from anchorwatch_fleet.instances import STATES
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.branches import reach, reaches
from tests.unit.fleet.sights import NOW_MS, sight, situation, worker, workers

Call = tuple[str, dict[str, Any]]
RESTART_ALL = [("restart_instance", {"instance_id": f"w-{number}"}) for number in range(1, 7)]
CHECK = ("schedule_next_check", {"when": "1 min", "reason": "whether the fleet is as it should be"})


def calls(decision: StepDecision) -> list[Call]:
    return [(each.name, dict(each.arguments or {})) for each in decision.calls]


def first(observation: Observation, **more: Any) -> list[Call]:
    return calls(PACK.rules(situation(observation, **more)))


def launch(count: int, priority: str) -> list[Call]:
    return [("launch_instances", {"count": count, "launch_priority": priority})]


@pytest.mark.parametrize(
    ("instances", "tasks", "expected"),
    [
        pytest.param(workers(exited=3), 59, launch(6, "emergency"), id="the incident: dead, 59 queued"),
        pytest.param(workers(exited=3), 1, launch(1, "emergency"), id="dead, one queued"),
        pytest.param(workers(exited=3), 21, launch(3, "emergency"), id="dead, 21 queued"),
        pytest.param(workers(hung=2), 59, launch(4, "emergency"), id="all hang, 59 queued: room for four"),
        pytest.param(workers(), 59, launch(6, "normal"), id="a fleet that never was, 59 queued"),
        pytest.param(workers(loading=6, exited=3), 59, [], id="help is loading"),
        pytest.param(workers(running=2), 20, [], id="enough"),
        pytest.param(workers(running=2), 500, launch(4, "normal"), id="too few for the backlog"),
        pytest.param(workers(running=6), 5000, [], id="too few, and no room"),
        pytest.param(workers(), 0, launch(1, "normal"), id="nothing queued: one is kept ready"),
        pytest.param(workers(exited=3), 0, launch(1, "normal"), id="dead, nothing queued: one is kept ready"),
        pytest.param(workers(running=1), 0, [], id="nothing to do"),
        pytest.param(workers(hung=6), 59, RESTART_ALL, id="all hang, and no room"),
        pytest.param(
            workers(hung=1), 0, [("restart_instance", {"instance_id": "w-1"})], id="the only one hangs"
        ),
        pytest.param(
            workers(running=1, hung=1), 0, [("restart_instance", {"instance_id": "w-2"})], id="one hangs"
        ),
    ],
)
def test_first_calls_of_the_rules_fit_the_facts(
    instances: list[Any], tasks: int, expected: list[Call]
) -> None:
    assert first(sight(instances, tasks)) == expected


@pytest.mark.parametrize(
    ("instances", "tasks"),
    [(None, 59), (workers(exited=3), None), (None, None), (workers(running=3), None), (None, 0)],
)
def test_unknown_facts_change_nothing_and_are_checked_soon(
    instances: list[Any] | None, tasks: int | None
) -> None:
    assert first(sight(instances, tasks)) == [
        ("schedule_next_check", {"when": "1 min", "reason": "whether the silent source answers again"})
    ]


@pytest.mark.parametrize(
    ("blind_minutes", "report"),
    [
        (0, False),
        (1.9, False),
        (2, True),
        (6.9, True),
        (7.1, False),
        (8, True),
        (13.1, False),
        (32, True),
        (38, False),
    ],
)
def test_people_are_notified_of_a_condition_at_growing_intervals(
    blind_minutes: float, *, report: bool
) -> None:
    facts = {"blind_since_ms": NOW_MS - round(blind_minutes * 60_000)}

    names = [name for name, _ in first(sight(None, 5), facts=facts)]

    assert names == (["notify_human"] if report else ["schedule_next_check"])


def test_notice_is_followed_by_a_check_and_the_answer_unknown() -> None:
    facts = {"blind_since_ms": NOW_MS - 200_000}
    notified = PastCall("notify_human", {}, "succeeded", "People will be told: The fleet cannot be seen")
    checked = PastCall("schedule_next_check", {}, "succeeded", "Next check in 1 min")

    second = PACK.rules(situation(sight(None, 5), notified, facts=facts))
    third = PACK.rules(situation(sight(None, 5), notified, checked, facts=facts))

    assert [name for name, _ in calls(second)] == ["schedule_next_check"]
    assert calls(third) == []
    assert "5 tasks queued, unknown workers running" in third.text


def test_surplus_is_stopped_only_after_long_idleness_but_for_one() -> None:
    three = [worker("w-1", age_s=5000), worker("w-2", age_s=4000), worker("w-3", age_s=4500)]
    long_idle = {"idle_since_ms": NOW_MS - 901_000}
    short_idle = {"idle_since_ms": NOW_MS - 899_000}

    assert first(sight(three), facts=long_idle) == [("stop_instance", {"instance_id": "w-2"})]
    assert first(sight(three), facts=short_idle) == []
    assert first(sight(three), facts={"idle_since_ms": 0}) == []
    assert first(sight(three[:1]), facts=long_idle) == []


def test_launch_is_followed_by_a_check_and_a_sentence() -> None:
    seen = sight(workers(exited=3), 59)
    launched = PastCall("launch_instances", {"count": 6}, "succeeded", "Launched 6: w-4, …, w-9")
    checked = PastCall("schedule_next_check", {}, "succeeded", "Next check in 1 min")

    assert calls(PACK.rules(situation(seen, launched))) == [CHECK]
    end = PACK.rules(situation(seen, launched, checked))
    assert calls(end) == []
    assert end.text.startswith(
        "Launched 6: w-4, …, w-9. Next check in 1 min. EMERGENCY when seen: all workers are dead"
    )


@pytest.mark.parametrize("state", ["refused", "unknown", "failed", "rejected"])
def test_failed_launch_is_reported_once_and_not_repeated(
    state: str,
) -> None:
    seen = sight(workers(exited=3), 59)
    launched = PastCall("launch_instances", {"count": 6}, state, "no answer")
    notified = PastCall("notify_human", {}, "succeeded", "People will be told")
    checked = PastCall("schedule_next_check", {}, "succeeded", "Next check in 1 min")

    [(name, args)] = calls(PACK.rules(situation(seen, launched)))
    assert (name, args["severity"]) == ("notify_human", "critical")
    assert calls(PACK.rules(situation(seen, launched, notified))) == [CHECK]
    assert calls(PACK.rules(situation(seen, launched, notified, checked))) == []


def test_turn_ends_though_the_notice_fails_too() -> None:
    seen = sight(workers(exited=3), 59)
    failed = [
        PastCall(name, {}, "failed", "no")
        for name in ("launch_instances", "notify_human", "schedule_next_check")
    ]

    end = PACK.rules(situation(seen, *failed))

    assert calls(end) == []
    assert "launch_instances failed: no." in end.text


OBSERVATIONS = st.builds(
    sight,
    st.none()
    | st.lists(
        st.builds(worker, st.sampled_from([f"w-{n}" for n in range(9)]), st.sampled_from(STATES)), max_size=9
    ),
    st.none() | st.integers(0, 500),
)
# All run, and little or nothing is queued: the border of where the rules stop one.
QUIET = st.builds(
    sight,
    st.lists(
        st.builds(worker, st.sampled_from(["w-1", "w-2", "w-3"]), st.just("running")), min_size=2, max_size=4
    ),
    st.integers(0, 1),
)
OUTCOMES = st.lists(
    st.sampled_from(["succeeded", "failed", "refused", "unknown", "rejected"]), min_size=12, max_size=12
)


@given(OBSERVATIONS, OUTCOMES, st.fixed_dictionaries({"blind_since_ms": st.integers(0, NOW_MS)}))
@settings(deadline=None)
def test_turn_ends_without_repeated_calls_for_any_facts(
    observation: Observation, outcomes: list[str], facts: dict[str, int]
) -> None:
    past: list[PastCall] = []
    asked: list[str] = []
    for outcome in outcomes:
        decision = PACK.rules(situation(observation, *past, facts=facts))
        if not decision.calls:
            assert decision.text
            break
        for call in decision.calls:
            asked.append(f"{call.name} {call.arguments}")
            past.append(PastCall(call.name, call.arguments or {}, outcome, "words"))
    else:
        pytest.fail("the turn does not end")
    # Two listed instances may bear one id here; the real yard lists each once.
    assert len({each for each in asked if "restart" not in each}) == len(
        [each for each in asked if "restart" not in each]
    )


@reaches("busy or unknown", "not counted", "stop")
@given(OBSERVATIONS | QUIET, st.fixed_dictionaries({"idle_since_ms": st.integers(0, NOW_MS)}))
@settings(deadline=None)
def test_nothing_stops_while_tasks_wait_or_facts_are_unknown(
    observation: Observation, facts: dict[str, int]
) -> None:
    names = [name for name, _ in first(observation, facts=facts)]

    if "stop_instance" in names:
        reach("stop")
    if observation.unknown or observation.facts["tasks_queued"]:
        reach("busy or unknown")
        assert "stop_instance" not in names
    if observation.facts["tasks_queued"] is None or observation.facts["instances_live"] is None:
        reach("not counted")
        assert not {"launch_instances", "restart_instance"} & set(names)


@reaches("launch")
@given(OBSERVATIONS)
@settings(deadline=None)
def test_rules_never_request_more_than_the_limit(observation: Observation) -> None:
    for name, args in first(observation):
        if name == "launch_instances":
            reach("launch")
            assert 1 <= args["count"] <= 6 - int(observation.facts["instances_live"] or 0)


def test_default_agent_is_granted_every_tool_the_rules_use() -> None:
    assert set(default_agent().grants) == {tool.name for tool in PACK.tools(default_agent())}
