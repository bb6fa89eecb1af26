"""Derives events from changes of observations. Pure. The same change always has the same event id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, cast

from anchorwatch.packs import UNKNOWN, Observation, Probed

from anchorwatch_fleet.instances import Instance, instance_from_json
from anchorwatch_fleet.observe import QUEUE_FACTS, YARD_FACTS

SOURCE = "fleet"
NEWS_MS_MAX = 600_000
"""An older end of an instance causes no event: the next observation shows it."""

Priority = Literal["P0", "P1", "P2"]


def changes(before: Observation | None, now: Observation, backlog_s_max: float) -> list[Probed]:
    """Events for conditions that hold ``now`` and did not hold, or were unknown, ``before``."""
    return [
        *_ended_or_hung(before, now),
        *_waiting(before, now),
        *_backlog(before, now, backlog_s_max),
        *_silent_sources(before, now),
    ]


def _ended_or_hung(before: Observation | None, now: Observation) -> Iterator[Probed]:
    known = {(each.id, each.state, each.since_ms) for each in _instances(before)}
    for each in _instances(now):
        if (each.id, each.state, each.since_ms) in known or now.at_ms - each.since_ms > NEWS_MS_MAX:
            continue
        data = {
            "instance": each.id,
            "state": each.state,
            "since_ms": each.since_ms,
            "jobs_done": each.jobs_done,
            "last_error": each.last_error,
            "tasks_queued": now.facts["tasks_queued"],
        }
        if each.state == "exited":
            yield _event("instance.dead", "P0", f"dead-{each.id}-{each.since_ms}", data)
        elif each.state == "hung":
            yield _event("instance.hung", "P1", f"hung-{each.id}-{each.since_ms}", data)


def _waiting(before: Observation | None, now: Observation) -> Iterator[Probed]:
    """Tasks are queued, and no worker is running or loading."""
    if not _nobody_serves(now) or (before is not None and _nobody_serves(before)):
        return
    # Between two such episodes a worker ran and ended: the last end identifies the episode.
    last_end_ms = max((each.since_ms for each in _instances(now)), default=0)
    event_id = f"waiting-{_last_sequence(now)}-{last_end_ms}"
    yield _event(
        "queue.waiting", "P1", event_id, _shown(now, "tasks_queued", "workers_dead", "instances_live")
    )


def _backlog(before: Observation | None, now: Observation, backlog_s_max: float) -> Iterator[Probed]:
    """The fleet works, but the queue will take long."""
    backlog_s = backlog_seconds(now.facts)
    if backlog_s is None or backlog_s <= backlog_s_max:
        return
    before_s = None if before is None else backlog_seconds(before.facts)
    if before_s is not None and before_s > backlog_s_max:
        return
    event_id = f"backlog-{_last_sequence(now)}"
    data = {**_shown(now, "tasks_queued", "projected_capacity_ph"), "backlog_s": round(backlog_s)}
    yield _event("queue.backlog", "P1", event_id, data)


def _silent_sources(before: Observation | None, now: Observation) -> Iterator[Probed]:
    """A source that answered before is silent."""
    if before is None:
        return
    for source, of_source in (("yard", YARD_FACTS), ("queue", QUEUE_FACTS)):
        probe = of_source[0]
        if before.facts.get(probe) is not UNKNOWN and now.facts.get(probe) is UNKNOWN:
            data = {"silent": source, "unknown": list(now.unknown), "answered_at_ms": before.at_ms}
            yield _event("source.unknown", "P1", f"unknown-{source}-{before.at_ms}", data)


def backlog_seconds(facts: Mapping[str, Any]) -> float | None:
    """Seconds until the queue is empty with the running and loading workers; None: unknown, or none is running."""
    tasks, capacity_ph = facts.get("tasks_queued"), facts.get("projected_capacity_ph")
    if tasks is None or not capacity_ph:
        return None
    return float(tasks) * 3600 / float(capacity_ph)


def _nobody_serves(observation: Observation) -> bool:
    facts = observation.facts
    return facts["demand_queued"] is True and facts["workers_alive"] == 0 and facts["workers_loading"] == 0


def _instances(observation: Observation | None) -> Sequence[Instance]:
    listed = None if observation is None else observation.data.get("instances")
    return [instance_from_json(each) for each in cast("list[dict[str, Any]]", listed or [])]


def _last_sequence(observation: Observation) -> int:
    queue = cast("Mapping[str, int]", observation.data.get("queue") or {})
    return queue.get("last_sequence", 0)


def _shown(observation: Observation, *names: str) -> dict[str, Any]:
    return {name: observation.facts[name] for name in names}


def _event(type_: str, priority: Priority, event_id: str, data: Mapping[str, Any]) -> Probed:
    return Probed(event_id=event_id, source=SOURCE, type=type_, priority=priority, data=data)
