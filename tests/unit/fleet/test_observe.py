from __future__ import annotations

import json
from typing import Any

import pytest
from anchorwatch_fleet.instances import Instance
from anchorwatch_fleet.observe import QUEUE_FACTS, YARD_FACTS

from tests.unit.fleet.sights import NOW_MS, sight, worker, workers


def test_incident_is_reported_as_demand_without_service() -> None:
    seen = sight(workers(exited=3), tasks=59)

    assert seen.facts["demand_active"] is False
    assert seen.facts["demand_queued"] is True
    assert seen.facts["workers_dead"] is True
    assert seen.facts["tasks_queued"] == 59
    assert "EMERGENCY: all workers are dead while 59 tasks wait. There IS demand" in seen.text
    assert "no demand" not in seen.text.lower()


@pytest.mark.parametrize(
    ("instances", "tasks", "silent", "heard"),
    [
        pytest.param(None, 59, YARD_FACTS, QUEUE_FACTS, id="the yard is away"),
        pytest.param(workers(running=1), None, QUEUE_FACTS, YARD_FACTS, id="the queue is away"),
        pytest.param(None, None, (*QUEUE_FACTS, *YARD_FACTS), (), id="both are away"),
    ],
)
def test_silent_source_makes_its_facts_unknown_and_never_zero(
    instances: list[Instance] | None, tasks: int | None, silent: tuple[str, ...], heard: tuple[str, ...]
) -> None:
    seen = sight(instances, tasks)

    assert {name: seen.facts[name] for name in silent} == dict.fromkeys(silent)
    assert all(seen.facts[name] is not None for name in heard)
    assert "unknown" in seen.text
    assert set(seen.unknown) == set(silent)


def test_jobs_done_is_unknown_alone() -> None:
    assert sight(jobs_done=None).unknown == ("jobs_done",)


@pytest.mark.parametrize(
    ("instances", "dead"),
    [
        (workers(), False),
        (workers(stopped=2), False),
        (workers(exited=1), True),
        (workers(hung=1), True),
        (workers(exited=2, stopped=1), True),
        (workers(exited=2, loading=1), False),
        (workers(exited=2, running=1), False),
    ],
)
def test_workers_are_dead_when_none_of_several_works_or_loads(
    instances: list[Instance], *, dead: bool
) -> None:
    assert sight(instances).facts["workers_dead"] is dead


@pytest.mark.parametrize(
    ("fields", "active"),
    [
        ({}, False),
        ({"job": "j-1"}, True),
        ({"job_done_at_ms": NOW_MS - 59_000}, True),
        ({"job_done_at_ms": NOW_MS - 61_000}, False),
    ],
)
def test_demand_is_active_when_a_worker_works_or_just_did(fields: dict[str, Any], *, active: bool) -> None:
    assert sight([worker("w-1", **fields)]).facts["demand_active"] is active


def test_recent_work_of_a_dead_worker_is_not_active_demand() -> None:
    assert sight([worker("w-1", "exited", job_done_at_ms=NOW_MS - 1000)]).facts["demand_active"] is False


def test_capacity_sums_rates_and_projects_what_loads() -> None:
    seen = sight([worker("w-1", rate_ph=4000.0), worker("w-2", rate_ph=2000.0), worker("w-3", "loading")])

    assert seen.facts["fleet_capacity_ph"] == 6000
    assert seen.facts["projected_capacity_ph"] == 9000


def test_projection_without_workers_uses_those_that_ran_before() -> None:
    seen = sight([worker("w-1", "exited", rate_ph=400.0), worker("w-2", "loading")])

    assert seen.facts["fleet_capacity_ph"] == 0
    assert seen.facts["projected_capacity_ph"] == 400


def test_unmeasured_rate_is_not_projected_as_zero() -> None:
    seen = sight(workers(loading=1))

    assert seen.facts["fleet_capacity_ph"] == 0
    assert seen.facts["projected_capacity_ph"] is None


def test_tasks_in_work_never_exceed_the_tasks() -> None:
    seen = sight([worker("w-1", job="j-1"), worker("w-2", job="j-2")], tasks=1)

    assert seen.facts["tasks_in_work"] == 1


def test_each_instance_has_one_line_with_all_that_matters() -> None:
    seen = sight(
        [
            worker("w-1", age_s=300, jobs_done=14, job="j-9"),
            worker("w-2", "exited", age_s=5, jobs_done=3, last_error="killed by SIGKILL"),
        ]
    )

    first, second = seen.text.splitlines()[-2:]
    assert first == (
        "w-1: running since 2027-01-15 07:55:00Z (5 min), 14 jobs done, 6000.0 proofs/h, working on j-9, last error: none"
    )
    assert second == (
        "w-2: exited since 2027-01-15 07:59:55Z (5 s), 3 jobs done, unknown proofs/h, last error: killed by SIGKILL"
    )


def test_digest_names_the_observation() -> None:
    seen = sight(workers(running=1), tasks=3)

    assert seen.digest == sight(workers(running=1), tasks=3).digest
    assert (
        len({seen.digest, sight(tasks=3).digest, sight(workers(running=1), tasks=3, at_ms=NOW_MS + 1).digest})
        == 3
    )


def test_structured_detail_is_json() -> None:
    seen = sight(workers(running=1, exited=1), tasks=3)

    assert json.loads(json.dumps(seen.data)) == seen.data
