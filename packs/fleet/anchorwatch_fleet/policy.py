"""The pack's invariants (CEL), the anchor's facts from an observation, and emergencies."""

from __future__ import annotations

from typing import Any

from anchorwatch.packs import UNKNOWN, Emergency, Fact, Facts, Invariant, Observation, Sighting

from anchorwatch_fleet.launches import leads_to_nothing

Truth = bool | None
"""None is unknown."""

ANCHOR_FACTS = (
    "fleet_capacity_ph",
    "projected_capacity_ph",
    "demand_active",
    "demand_queued",
    "tasks_queued",
    "tasks_in_work",
    "workers_dead",
    "workers_alive",
    "workers_loading",
    "workers_hung",
    "instances_live",
    "launches_in_vain",
    "deaths_before_work",
    "launch_backoff",
    "fleet_limit",
    "jobs_done",
)

INVARIANTS: tuple[Invariant, ...] = (
    Invariant(
        name="no-scale-down-while-workers-are-dead",
        tools=("stop_instance",),
        needs=("demand_queued", "workers_dead"),
        rule="!(observation.demand_queued && observation.workers_dead)",
        message="no scale-down while tasks are queued and workers are dead, or while either is unknown",
    ),
    Invariant(
        name="keep-the-last-running-instance",
        tools=("stop_instance",),
        needs=("demand_queued", "workers_alive"),
        rule="!observation.demand_queued || observation.workers_alive > 1",
        message="the last running instance is not stopped while tasks are queued",
    ),
    Invariant(
        name="within-the-fleet-limit",
        tools=("launch_instances",),
        needs=("instances_live", "fleet_limit"),
        rule="observation.instances_live + command.args.count <= observation.fleet_limit",
        message="live instances and new ones together would be above the fleet limit",
    ),
    Invariant(
        name="launch-backoff",
        tools=("launch_instances",),
        needs=("launch_backoff",),
        rule="!observation.launch_backoff",
        message="the instances of the last launches ended before they did a job; the next launch must wait",
    ),
)


def reduce(facts: Facts, observation: Observation) -> dict[str, Any]:
    """The anchor's facts after an observation.

    ``idle_since_ms``: since when nothing is known to be queued or in work; 0: not idle. ``blind_since_ms``: since when a
    source is silent; 0: all answer. An unknown fact becomes unknown in the anchor; its old value is not kept.
    """
    seen = observation.facts
    reduced: dict[str, Any] = {name: seen.get(name) for name in ANCHOR_FACTS}
    idle = seen.get("tasks_queued") == 0 and seen.get("tasks_in_work") == 0
    blind = any(seen.get(name) is UNKNOWN for name in ("tasks_queued", "instances_live"))
    reduced["idle_since_ms"] = (facts.get("idle_since_ms") or observation.at_ms) if idle else 0
    reduced["blind_since_ms"] = (facts.get("blind_since_ms") or observation.at_ms) if blind else 0
    return reduced


def unserved(facts: Facts) -> Truth:
    """Whether tasks are queued, and no worker is running or loading. Unknown where a fact that decides it is unknown."""
    dead = facts.get("workers_dead")
    nobody = _all(_is_zero(facts.get("workers_alive")), _is_zero(facts.get("workers_loading")))
    return _all(facts.get("demand_queued"), _any(dead, nobody))


def emergency(facts: Facts) -> Sighting:
    """The emergency: tasks are queued and unserved. Where launches are in vain, an instance that only loads does not end it."""
    tasks, in_vain = facts.get("tasks_queued"), no_progress(facts)
    if in_vain and facts.get("demand_queued") and facts.get("workers_alive") == 0:
        return Emergency("launches-in-vain", f"{in_vain}, and {tasks} tasks are queued")
    shown = unserved(facts)
    if not shown:
        return shown
    if facts.get("workers_dead"):
        return Emergency("workers-dead", f"all workers are dead while {tasks} tasks are queued")
    return Emergency("no-workers", f"no worker serves the {tasks} tasks that are queued")


def no_progress(facts: Facts) -> str | None:
    """Why launches lead to nothing; None: they do, or it is not known."""
    launches, deaths = int(facts.get("launches_in_vain") or 0), int(facts.get("deaths_before_work") or 0)
    if not leads_to_nothing(launches, deaths):
        return None
    return f"{deaths} instances of the last {launches} launches ended before they did a job"


def _is_zero(count: Fact) -> Truth:
    return UNKNOWN if count is UNKNOWN else count == 0


def _all(*parts: Fact) -> Truth:
    """False if a part is known to be false; unknown if none is, and one is unknown."""
    if any(part is not UNKNOWN and not part for part in parts):
        return False
    return UNKNOWN if UNKNOWN in parts else True


def _any(*parts: Fact) -> Truth:
    """True if a part is known to be true; unknown if none is, and one is unknown."""
    return True if any(parts) else UNKNOWN if UNKNOWN in parts else False
