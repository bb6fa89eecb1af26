"""The pack's own verbs of the command line: ``fleet status``, ``fleet jobs add N``, ``fleet kill ID``.

Each takes a connected bus.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from anchorwatch.packs import BadInput, Bus, Message, NotFound, StreamMissing

from anchorwatch_fleet.client import YardClient, YardRefused
from anchorwatch_fleet.config import FleetConfig
from anchorwatch_fleet.jobs import MIXED, Fault, Result, decode_result, encode_job, make_job
from anchorwatch_fleet.runtime import FleetRuntime
from anchorwatch_fleet.subjects import JOB, JOBS_SPEC, RESULT, RESULTS

JOBS_MAX = 100_000
PAGE = 256


async def status(bus: Bus, config: FleetConfig | None = None) -> dict[str, Any]:
    """The current observation of the fleet: {"at_ms", "facts", "instances", "text"}.

    ``instances`` is None when the yard does not answer; facts are None when they are unknown. It does not raise for that.
    """
    observation = await FleetRuntime(bus, config or FleetConfig()).observe()
    return {
        "at_ms": observation.at_ms,
        "facts": dict(observation.facts),
        "instances": observation.data["instances"],
        "text": observation.text,
    }


def render_status(told: Mapping[str, Any]) -> str:
    """The output of ``fleet status``."""
    return str(told["text"])


async def add_jobs(
    bus: Bus, n: int, size: str = MIXED, fault: Fault = "", batch: str | None = None
) -> list[str]:
    """Queue ``n`` new jobs; returns their ids.

    ``fault``: misbehaviour of the first worker that takes such a job (for tests). ``batch``: a part of the ids that makes the
    jobs repeatable; None: random.

    Raises:
        BadInput: ``n`` is not 1 to 100,000, or size or fault is unknown.
        Unavailable: the bus did not answer; the jobs before that are queued.
    """
    if not 1 <= n <= JOBS_MAX:
        raise BadInput(f"cannot add {n} jobs", hint=f"add 1 to {JOBS_MAX} at a time")
    batch = batch or secrets.token_hex(4)
    ids = [f"j-{batch}-{number}" for number in range(1, n + 1)]
    for job_id in ids:
        # The message id deduplicates a retry.
        message = Message(JOB.at(job_id=job_id), encode_job(make_job(job_id, size, fault)), message_id=job_id)
        try:
            await bus.publish(message)
        except StreamMissing:
            # The yard creates the queue; jobs may be added before it exists.
            await bus.ensure_stream(JOBS_SPEC)
            await bus.publish(message)
    return ids


def render_added(job_ids: list[str]) -> str:
    """The output of ``fleet jobs add``."""
    shown = job_ids[0] if len(job_ids) == 1 else f"{job_ids[0]} … {job_ids[-1]}"
    return f"{len(job_ids)} jobs queued: {shown}"


async def kill(bus: Bus, id: str, how: str = "kill") -> dict[str, Any]:  # noqa: A002 - the verb says ID
    """Kill an instance's process with signal 9 (or let it ``hang``): {"id", "pid", "state"}.

    Raises:
        NotFound: the instance is unknown or has no process.
        BadInput: the id or ``how`` is invalid.
        Unavailable: the yard does not answer.
    """
    try:
        return await YardClient(bus).ask("kill", 10.0, id=id, how=how)
    except YardRefused as error:
        if error.yard_code == NotFound.code:
            raise NotFound(error.message) from None
        raise BadInput(error.message) from None


def render_killed(told: Mapping[str, Any]) -> str:
    """The output of ``fleet kill``."""
    return f"{told['id']} (pid {told['pid']}) was killed; it is {told['state']}"


async def results(bus: Bus) -> list[Result]:
    """Every stored result, oldest first. Check each with `Result.proves`.

    Raises:
        Unavailable: the bus did not answer.
    """
    found: list[Result] = []
    sequence, more = 1, True
    while more:
        page = await bus.range(RESULTS, RESULT.filter(), sequence, PAGE)
        found += [decode_result(each.payload) for each in page.messages]
        more = page.more
        sequence = page.messages[-1].sequence + 1 if page.messages else sequence
    return found


async def launches(bus: Bus) -> dict[str, dict[str, int]]:
    """For each effect key, the number of starts of each instance, as the workers recorded them.

    Raises:
        YardRefused, Unavailable: no answer of the yard.
    """
    answer = await YardClient(bus).ask("count")
    return {str(key): dict(counts) for key, counts in answer["launches"].items()}
