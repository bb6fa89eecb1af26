"""Observations as facts and as text. Pure: the same sources give the same observation.

Each fact has one source. If that source did not answer, the fact is unknown: not zero, not false, and not its last value.
"Every worker is dead" and "nothing is queued" are two facts, and neither follows from "nothing is active" (INV-701).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from anchorwatch.packs import UNKNOWN, Fact, Observation, instant

from anchorwatch_fleet.instances import Instance
from anchorwatch_fleet.launches import launches_in_vain, leads_to_nothing
from anchorwatch_fleet.sources import Sources

ACTIVE_WITHIN_MS = 60_000
AGE_MAX_S = 60.0
DIGEST_CHARS = 16

YARD_FACTS = (
    "demand_active",
    "tasks_in_work",
    "instances",
    "instances_live",
    "workers_alive",
    "workers_loading",
    "workers_hung",
    "workers_dead",
    "fleet_capacity_ph",
    "projected_capacity_ph",
    "launches_in_vain",
    "deaths_before_work",
    "launch_backoff",
)
QUEUE_FACTS = ("demand_queued", "tasks_queued")


def make_observation(sources: Sources, fleet_limit: int, at_ms: int) -> Observation:
    """The observation from the sources."""
    facts: dict[str, Fact] = dict.fromkeys((*QUEUE_FACTS, *YARD_FACTS), UNKNOWN)
    if sources.queue is not None:
        facts["demand_queued"] = sources.queue.tasks > 0
        facts["tasks_queued"] = sources.queue.tasks
    if sources.instances is not None:
        facts.update(yard_facts(sources.instances, at_ms))
        if sources.queue is not None:
            # A worker's report may be a second old; the queue's is not.
            facts["tasks_in_work"] = min(int(facts["tasks_in_work"] or 0), sources.queue.tasks)
    facts["jobs_done"] = sources.jobs_done
    facts["fleet_limit"] = fleet_limit
    instances = None if sources.instances is None else [each.to_json() for each in sources.instances]
    queue = None
    if sources.queue is not None:
        queue = {"tasks": sources.queue.tasks, "last_sequence": sources.queue.last_sequence}
    data: dict[str, object] = {"instances": instances, "queue": queue}
    content = json.dumps(
        {"at_ms": at_ms, "facts": facts, "data": data}, sort_keys=True, separators=(",", ":")
    )
    return Observation(
        text=describe(facts, sources.instances, at_ms),
        facts=facts,
        at_ms=at_ms,
        digest=hashlib.sha256(content.encode()).hexdigest()[:DIGEST_CHARS],
        age_max_s=AGE_MAX_S,
        data=data,
    )


def yard_facts(instances: Sequence[Instance], at_ms: int) -> dict[str, Fact]:
    """The facts from the yard's list."""
    running = [each for each in instances if each.state == "running"]
    loading = [each for each in instances if each.state == "loading"]
    exited = [each for each in instances if each.state == "exited"]
    hung = [each for each in instances if each.state == "hung"]
    in_work = sum(each.job is not None for each in running)
    lately = any(at_ms - (each.job_done_at_ms or 0) <= ACTIVE_WITHIN_MS for each in running)
    capacity_ph = _sum_rates(running)
    in_vain = launches_in_vain(instances, at_ms)
    return {
        "demand_active": in_work > 0 or lately,
        "tasks_in_work": in_work,
        "instances": len(running) + len(loading) + len(hung) + len(exited),
        "instances_live": len(running) + len(loading) + len(hung),
        "workers_alive": len(running),
        "workers_loading": len(loading),
        "workers_hung": len(hung),
        # There were workers, no person stopped them, and none is running or loading.
        "workers_dead": bool(exited or hung) and not running and not loading,
        "fleet_capacity_ph": capacity_ph,
        "projected_capacity_ph": _projected_ph(capacity_ph, instances, len(loading)),
        "launches_in_vain": in_vain.launches,
        "deaths_before_work": in_vain.deaths,
        "launch_backoff": at_ms < in_vain.next_at_ms,
    }


def _sum_rates(instances: Sequence[Instance]) -> float | None:
    rates = [each.rate_ph for each in instances]
    known = [rate for rate in rates if rate is not None]
    return round(sum(known), 1) if len(known) == len(rates) else None


def _projected_ph(capacity_ph: float | None, instances: Sequence[Instance], loading: int) -> float | None:
    """Capacity after loading: loading workers count as fast as the running ones, else as earlier ones."""
    if capacity_ph is None or loading == 0:
        return capacity_ph
    running = [each.rate_ph for each in instances if each.state == "running" and each.rate_ph is not None]
    before = [each.rate_ph for each in instances if each.rate_ph is not None]
    rates = running or before
    return round(capacity_ph + loading * sum(rates) / len(rates), 1) if rates else None


# ---------------------------------------------------------------- text


def describe(facts: dict[str, Fact], instances: Sequence[Instance] | None, at_ms: int) -> str:
    """The observation as text: a summary, then one line for each instance."""
    lines = [f"Fleet at {_clock(at_ms)}.", _demand(facts), _workers(facts), _capacity(facts)]
    if instances is None:
        lines.append(
            "Instances: unknown (the yard does not answer). Unknown is not zero: they may all be working."
        )
    else:
        lines.append(
            f"Instances ({len(instances)} listed, ended ones included):" if instances else "Instances: none."
        )
        lines += [describe_instance(each, at_ms) for each in instances]
    return "\n".join(lines)


def _demand(facts: dict[str, Fact]) -> str:
    if facts["tasks_queued"] is UNKNOWN:
        queued = "unknown (the queue does not answer; unknown is not zero)"
    else:
        queued = f"{facts['tasks_queued']} tasks queued and not done, {_shown(facts['tasks_in_work'])} of them in work"
    return f"Demand: {queued}. demand_queued={_shown(facts['demand_queued'])}, demand_active={_shown(facts['demand_active'])}."


def _workers(facts: dict[str, Fact]) -> str:
    if facts["workers_alive"] is UNKNOWN:
        return f"Workers: unknown. The fleet limit is {facts['fleet_limit']}."
    text = (
        f"Workers: {facts['workers_alive']} running, {facts['workers_loading']} loading, {facts['workers_hung']} hung; "
        f"{facts['instances_live']} live of at most {facts['fleet_limit']}. workers_dead={_shown(facts['workers_dead'])}."
    )
    if facts["workers_dead"] and facts["demand_queued"]:
        text += f"\nEMERGENCY: all workers are dead while {facts['tasks_queued']} tasks wait. "
        text += "There IS demand, and no worker serves it."
    elif facts["demand_queued"] and facts["workers_alive"] == 0 and facts["workers_loading"] == 0:
        text += f"\nATTENTION: {facts['tasks_queued']} tasks wait and no worker serves them."
    launches, deaths = int(facts["launches_in_vain"] or 0), int(facts["deaths_before_work"] or 0)
    if leads_to_nothing(launches, deaths):
        text += (
            f"\nNO PROGRESS: {deaths} instances of the last {launches} launches ended before they did a job."
        )
        text += f" launch_backoff={_shown(facts['launch_backoff'])}."
    return text


def _capacity(facts: dict[str, Fact]) -> str:
    return (
        f"Capacity: {_shown(facts['fleet_capacity_ph'])} proofs/h measured, "
        f"{_shown(facts['projected_capacity_ph'])} with what is loading. Jobs done so far: {_shown(facts['jobs_done'])}."
    )


def describe_instance(instance: Instance, at_ms: int) -> str:
    """One line: id, state, since when, jobs done, rate, current job, last error."""
    parts = [
        f"{instance.id}: {instance.state} since {_clock(instance.since_ms)} ({_age(at_ms - instance.since_ms)})",
        f"{_shown(instance.jobs_done)} jobs done",
        f"{_shown(instance.rate_ph)} proofs/h",
    ]
    if instance.job is not None:
        parts.append(f"working on {instance.job}")
    parts.append(f"last error: {instance.last_error or 'none'}")
    return ", ".join(parts)


def _shown(fact: Fact) -> str:
    if fact is UNKNOWN:
        return "unknown"
    return str(fact).lower() if isinstance(fact, bool) else str(fact)


def _clock(at_ms: int) -> str:
    return instant(at_ms).strftime("%Y-%m-%d %H:%M:%SZ")


def _age(milliseconds: int) -> str:
    seconds = max(milliseconds, 0) // 1000
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
