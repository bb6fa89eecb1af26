"""Observations for tests, made from instances and a queue as the real ones are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anchorwatch.core.facts import Observation
from anchorwatch.models.port import PastCall, Situation
from anchorwatch_fleet.instances import Instance, State
from anchorwatch_fleet.observe import make_observation
from anchorwatch_fleet.sources import Queue, Sources

NOW_MS = 1_800_000_000_000
RATE_PH = 6000.0


def worker(instance_id: str, state: State = "running", *, age_s: float = 60, **fields: Any) -> Instance:
    fields.setdefault("rate_ph", RATE_PH if state == "running" else None)
    return Instance(instance_id, state, NOW_MS - round(age_s * 1000), **fields)


def workers(**counts: int) -> list[Instance]:
    """So many in each state, such as ``workers(running=2, exited=1)``."""
    states: dict[str, State] = {
        "loading": "loading",
        "running": "running",
        "hung": "hung",
        "stopped": "stopped",
        "exited": "exited",
    }
    listed = [states[name] for name, count in counts.items() for _ in range(count)]
    return [worker(f"w-{number}", state) for number, state in enumerate(listed, 1)]


def sight(
    instances: Sequence[Instance] | None = (),
    tasks: int | None = 0,
    *,
    fleet_limit: int = 6,
    at_ms: int = NOW_MS,
    jobs_done: int | None = 0,
    last_sequence: int = 100,
) -> Observation:
    """What is seen; None for a source that does not answer."""
    queue = None if tasks is None else Queue(tasks, last_sequence)
    listed = None if instances is None else tuple(instances)
    return make_observation(Sources(listed, queue, jobs_done), fleet_limit, at_ms)


def situation(
    observation: Observation,
    *past: PastCall,
    facts: Mapping[str, Any] | None = None,
    heartbeat_s: float = 300,
    **limits: Any,
) -> Situation:
    """A turn in which each past call was a step of its own."""
    return Situation(
        run_id=1,
        facts=dict(facts or {}),
        observation=observation,
        wakes=(),
        steps=tuple((call,) for call in past),
        objectives=(),
        constraints=(),
        limits={"fleet_limit": 6, **limits},
        heartbeat_s=heartbeat_s,
    )
