"""Launches whose instances die before they work: they are counted, the next one waits longer each time, and rules wait too."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from anchorwatch.cel import evaluate
from anchorwatch.core.facts import Observation
from anchorwatch.core.policy import Question, judge
from anchorwatch.models.port import PastCall
from anchorwatch_fleet import PACK
from anchorwatch_fleet.instances import Instance
from anchorwatch_fleet.launches import (
    BACKOFF_MS,
    DEATHS_LISTED_MAX,
    FORGET_MS,
    LaunchesInVain,
    launches_in_vain,
)
from anchorwatch_fleet.policy import INVARIANTS, emergency, no_progress, reduce
from anchorwatch_fleet.yard.roster import ENDED_LISTED_MAX

from tests.unit.fleet.sights import NOW_MS, sight, situation

SECOND_MS = 1_000


def dead(number: int, *, launch: int | None = None, ago_s: float = 1, jobs: int | None = 0) -> Instance:
    """An instance that ended without a request. ``launch``: which launch started it (its own)."""
    key = f"k-{number if launch is None else launch}"
    ended_ms = NOW_MS - round(ago_s * 1_000)
    return Instance(f"w-{number}", "exited", ended_ms, effect_key=key, jobs_done=jobs)


def alive(number: int, *, launch: int, jobs: int = 0, state: str = "running", for_s: float = 1) -> Instance:
    return replace(dead(number, launch=launch, ago_s=for_s, jobs=jobs), state=state)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("instances", "launches", "deaths", "wait_ms"),
    [
        pytest.param([], 0, 0, 0, id="none"),
        pytest.param([dead(1)], 1, 1, 0, id="one may be an accident"),
        pytest.param([dead(1), dead(2)], 2, 2, 0, id="two may be"),
        pytest.param([dead(1), dead(2), dead(3)], 3, 3, BACKOFF_MS, id="three are not"),
        pytest.param([dead(n) for n in range(1, 6)], 5, 5, 4 * BACKOFF_MS, id="five wait longer"),
        pytest.param([dead(n) for n in range(1, 21)], 20, 20, 600_000, id="bounded"),
        pytest.param([dead(n, launch=0) for n in range(1, 7)], 1, 6, 0, id="six of one launch"),
        pytest.param(
            [dead(n, launch=0) for n in range(1, 21)], 1, 20, 4 * BACKOFF_MS, id="a list full of deaths"
        ),
        pytest.param([dead(9), dead(10), dead(11)], 3, 3, BACKOFF_MS, id="ids are numbers"),
        pytest.param([*map(dead, (1, 2, 3)), dead(4, jobs=1)], 0, 0, 0, id="the newest did a job, then died"),
        pytest.param([dead(1, jobs=7), *map(dead, (2, 3, 4))], 3, 3, BACKOFF_MS, id="an older one worked"),
        pytest.param([*map(dead, (1, 2, 3)), alive(4, launch=4, jobs=1)], 0, 0, 0, id="the newest works"),
        pytest.param(
            [*map(dead, (1, 2, 3)), alive(4, launch=4, for_s=60)], 0, 0, 0, id="the newest survives"
        ),
        pytest.param([*map(dead, (1, 2, 3)), alive(4, launch=4)], 3, 3, BACKOFF_MS, id="it must show it"),
        pytest.param(
            [*map(dead, (1, 2, 3)), alive(4, launch=4, state="loading")], 3, 3, BACKOFF_MS, id="it loads"
        ),
        pytest.param(
            [dead(1), dead(2), dead(3, launch=3), alive(4, launch=3)], 2, 2, 0, id="one of the newest lives"
        ),
        pytest.param([dead(1), dead(2), dead(3, jobs=None)], 2, 2, 0, id="jobs unknown: not decided"),
        pytest.param([dead(n, ago_s=FORGET_MS / 1_000) for n in (1, 2, 3)], 0, 0, 0, id="long ago"),
        pytest.param([dead(1, ago_s=9_000), dead(2), dead(3)], 2, 2, 0, id="one of them long ago"),
    ],
)
def test_launches_in_vain_are_counted_and_the_next_waits(
    instances: list[Instance], launches: int, deaths: int, wait_ms: int
) -> None:
    expected = LaunchesInVain(launches, deaths, NOW_MS - SECOND_MS + wait_ms if wait_ms else 0)
    assert launches_in_vain(instances, NOW_MS) == expected


def test_list_of_the_yard_is_as_long_as_assumed() -> None:
    assert DEATHS_LISTED_MAX == ENDED_LISTED_MAX


def refused(observation: Observation) -> set[str]:
    question = Question(
        "launch_instances",
        {"count": 1, "launch_priority": "normal"},
        "fleet",
        ["launch_instances"],
        {},
        observation,
    )
    return {each.name for each in INVARIANTS if judge(question, [each], evaluate).decision == "refused"}


def test_launch_is_refused_during_the_backoff_and_while_unknown() -> None:
    crashed = [dead(1), dead(2), dead(3)]
    assert refused(sight(crashed, 59)) == {"launch-backoff"}
    assert refused(sight(crashed, 59, at_ms=NOW_MS + BACKOFF_MS)) == set()
    assert "launch-backoff" in refused(sight(None, 59))


@pytest.mark.parametrize(
    ("count", "says"), [(2, None), (3, "3 instances of the last 3 launches ended before they did a job")]
)
def test_facts_say_that_launches_lead_to_nothing(count: int, says: str | None) -> None:
    seen = sight([dead(n) for n in range(1, count + 1)], 59)
    for facts in (seen.facts, reduce({}, seen)):
        assert no_progress(facts) == says
    assert ("NO PROGRESS" in seen.text) == bool(says)
    assert no_progress(sight(None, 59).facts) is None


@pytest.mark.parametrize(
    ("newest", "expected"),
    [
        ([], "launches-in-vain"),
        ([alive(4, launch=4, state="loading")], "launches-in-vain"),
        ([alive(4, launch=4)], None),
    ],
)
def test_loading_instance_does_not_end_an_emergency_of_launches(
    newest: list[Instance], expected: str | None
) -> None:
    seen = emergency(sight([dead(1), dead(2), dead(3), *newest], 59).facts)
    assert (seen.kind if seen else None) == expected
    assert emergency(sight([dead(1), dead(2), dead(3), *newest], 0).facts) is False


@dataclass
class CrashingFleet:
    """A yard whose instances all die two seconds after their start, before they work."""

    at_ms: int = NOW_MS
    instances: list[Instance] = field(default_factory=list)
    launches: list[int] = field(default_factory=list)

    def observe(self) -> Observation:
        self.instances = [
            replace(each, state="exited", since_ms=self.at_ms)
            if each.live and self.at_ms - each.since_ms >= 2 * SECOND_MS
            else each
            for each in self.instances
        ][-20:]
        return sight(self.instances, 400, at_ms=self.at_ms)

    def launch(self, count: int) -> None:
        self.launches.append(self.at_ms)
        for _ in range(count):
            number = len(self.launches) * 100 + len(self.instances)
            self.instances.append(
                Instance(
                    f"w-{number}", "loading", self.at_ms, effect_key=f"k-{len(self.launches)}", jobs_done=0
                )
            )

    def turn(self) -> str:
        """One turn of the rules, and its last words."""
        past: list[PastCall] = []
        while True:
            seen = self.observe()
            decision = PACK.rules(situation(seen, *past, tasks_per_instance=100))
            if not decision.calls:
                return decision.text
            for call in decision.calls:
                if call.name == "launch_instances":
                    assert refused(seen) == set(), "the rules ask for no launch that the executor refuses"
                    self.launch(int((call.arguments or {})["count"]))
                past.append(PastCall(call.name, call.arguments or {}, "succeeded", "ok"))


def test_fleet_that_only_dies_is_launched_ever_more_slowly() -> None:
    """400 jobs, and each worker is killed as it appears: the constant pace of 25 launches in 75 s is gone."""
    fleet = CrashingFleet()
    for _ in range(600):
        fleet.turn()
        fleet.at_ms += SECOND_MS
    seconds = [(at_ms - NOW_MS) / 1_000 for at_ms in fleet.launches]
    assert len([at_s for at_s in seconds if at_s < 75]) <= 6
    gaps = [after - before for before, after in pairwise(seconds)]
    assert gaps == sorted(gaps)
    assert gaps[-1] > 100


def test_fleet_that_works_again_is_launched_at_once() -> None:
    fleet = CrashingFleet()
    for _ in range(40):
        fleet.turn()
        fleet.at_ms += SECOND_MS
    well = Instance("w-99999", "exited", fleet.at_ms, effect_key="k-well", jobs_done=3)
    fleet.instances = [each for each in fleet.instances if not each.live] + [well]
    before = len(fleet.launches)
    fleet.turn()
    assert len(fleet.launches) == before + 1
