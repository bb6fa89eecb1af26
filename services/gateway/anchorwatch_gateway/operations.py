"""For operators: liveness and readiness, which need no token, and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Literal

from anchorwatch.core.errors import AnchorWatchError, Unavailable
from anchorwatch.journal.switches import SCOPES
from anchorwatch.service.event_counts import read_counts
from anchorwatch.topology.streams import EVENTS, STREAMS
from fastapi import APIRouter, Response, Security
from prometheus_client import CONTENT_TYPE_LATEST, Gauge, generate_latest
from pydantic import BaseModel, Field

from anchorwatch_gateway import dead_letters
from anchorwatch_gateway.errors import PROBLEMS
from anchorwatch_gateway.parts import Parts
from anchorwatch_gateway.requests import TOKEN, PartsDep

router = APIRouter(tags=["operations"])

LETTER_SERVICES = frozenset({"observer", "planner", "executor", "memory", "notifier"})


class Liveness(BaseModel):
    """The process answers."""

    status: Literal["ok"]


class Readiness(BaseModel):
    """Whether the gateway can serve requests."""

    status: Literal["ok", "unavailable"]
    checks: dict[str, str] = Field(description="`ok` or the problem, for the bus, each stream and memory")


@router.get("/healthz")
async def healthz() -> Liveness:
    """Report that this process answers."""
    return Liveness(status="ok")


@router.get("/readyz", responses={503: {"model": Readiness, "description": "A check failed"}})
async def readyz(parts: PartsDep, response: Response) -> Readiness:
    """Check the connection, the streams and memory. 503 names what is missing."""
    checks = await check(parts)
    ready = all(state == "ok" for state in checks.values())
    response.status_code = 200 if ready else 503
    return Readiness(status="ok" if ready else "unavailable", checks=checks)


@router.get(
    "/metrics",
    response_class=Response,
    dependencies=[Security(TOKEN)],
    responses={
        200: {"content": {"text/plain": {}}, "description": "Prometheus text format"},
        401: PROBLEMS[401],
    },
)
async def metrics(parts: PartsDep) -> Response:
    """Return metrics for Prometheus. Needs the token unless `ANCHORWATCH_METRICS_OPEN` is set."""
    await refresh(parts)
    return Response(generate_latest(parts.counters.registry), media_type=CONTENT_TYPE_LATEST)


async def check(parts: Parts) -> dict[str, str]:
    """The result of each check: ``ok``, or the problem."""
    if not parts.bus.connected:
        return {"bus": "not connected"}
    checks: dict[str, Awaitable[object]] = {
        spec.name: parts.bus.stream_state(spec.name) for spec in STREAMS
    } | {"memory": parts.memory.ask("ping", {})}
    results = await asyncio.gather(*checks.values(), return_exceptions=True)
    return {"bus": "ok"} | {name: _result(result) for name, result in zip(checks, results, strict=True)}


def _result(result: object) -> str:
    if isinstance(result, AnchorWatchError):
        return result.message
    if isinstance(result, BaseException):
        raise result
    return "ok"


async def refresh(parts: Parts) -> None:
    """Set the gauges. A gauge is left out if its source does not answer: zero would be false."""
    counters = parts.counters
    for gauge in (counters.lag, counters.sessions, counters.effects, counters.letters, counters.routed):
        gauge.clear()
    await asyncio.gather(
        _memory(parts),
        _letters(parts),
        _switches(parts),
        _events(parts),
        *(_lag(parts, spec.name) for spec in STREAMS),
    )


async def _memory(parts: Parts) -> None:
    counters = parts.counters
    try:
        answer = await parts.memory.ask("stats", {})
        newest = (await parts.bus.stream_state(parts.committer.stream)).last_sequence
    except Unavailable:
        counters.up.set(0)
        return
    counters.up.set(1)
    counters.behind.set(max(0, newest - answer.as_of))
    counters.stuck.set(answer.result["runs_without_progress_max"])
    counters.refused.set(answer.result["inputs_refused"])
    counters.damaged.set(answer.result["damaged"])
    # A memory of the previous release does not send it.
    if used := answer.result.get("spending"):
        _fill(counters.tokens, {kind: used[kind] for kind in ("prompt", "completion")})
        counters.cost.set(used["cost"])
    _fill(counters.sessions, answer.result["sessions"])
    _fill(counters.effects, answer.result["effects"])


def _fill(gauge: Gauge, values: dict[str, int]) -> None:
    for label, value in values.items():
        gauge.labels(label).set(value)


async def _events(parts: Parts) -> None:
    try:
        counts = await read_counts(parts.bus)
        state, limits = await asyncio.gather(parts.bus.stream_state(EVENTS), parts.bus.limits(EVENTS))
    except AnchorWatchError:
        return
    for (observer, outcome), count in counts.items():
        parts.counters.routed.labels(observer, outcome).set(count)
    parts.counters.events_bytes.set(state.bytes)
    parts.counters.events_bytes_max.set(limits.bytes_max)


async def _switches(parts: Parts) -> None:
    try:
        switches = await parts.switches.all()
    except AnchorWatchError:
        return
    for scope in SCOPES:
        on = sum(each.on for each in switches if each.scope == scope)
        parts.counters.switches.labels(scope).set(on)


async def _letters(parts: Parts) -> None:
    try:
        counted = await dead_letters.counts(parts)
    except AnchorWatchError:
        return
    # An alert compares a figure, so zero is reported, too.
    for service in LETTER_SERVICES | {service for service, _ in counted}:
        for state in ("failing", "retried", "open"):
            parts.counters.letters.labels(service, state).set(counted.get((service, state), 0))


async def _lag(parts: Parts, stream: str) -> None:
    try:
        states = await parts.bus.consumer_states(stream)
    except AnchorWatchError:
        return
    for name, state in states.items():
        parts.counters.lag.labels(stream, name).set(state.pending + state.ack_pending)
