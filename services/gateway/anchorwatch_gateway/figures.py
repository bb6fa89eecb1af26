"""Figures of the mesh, fetched when they are asked for."""

from __future__ import annotations

import asyncio

from anchorwatch.core.errors import AnchorWatchError, Unavailable
from anchorwatch.journal.switches import SCOPES
from anchorwatch.topology.streams import STREAMS
from prometheus_client import Gauge

from anchorwatch_gateway import letters
from anchorwatch_gateway.parts import Parts


async def refresh(parts: Parts) -> None:
    """Set the gauges. What does not answer is left out rather than shown as zero."""
    counters = parts.counters
    for gauge in (counters.lag, counters.sessions, counters.effects, counters.letters):
        gauge.clear()
    await asyncio.gather(
        _memory(parts), _letters(parts), _switches(parts), *(_lag(parts, spec.name) for spec in STREAMS)
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
    # A memory of the release before does not say.
    if used := answer.result.get("spending"):
        _fill(counters.tokens, {kind: used[kind] for kind in ("prompt", "completion")})
        counters.cost.set(used["cost"])
    _fill(counters.sessions, answer.result["sessions"])
    _fill(counters.effects, answer.result["effects"])


def _fill(gauge: Gauge, values: dict[str, int]) -> None:
    for label, value in values.items():
        gauge.labels(label).set(value)


async def _switches(parts: Parts) -> None:
    try:
        standing = await parts.switches.all()
    except AnchorWatchError:
        return
    for scope in SCOPES:
        on = sum(each.on for each in standing if each.scope == scope)
        parts.counters.switches.labels(scope).set(on)


async def _letters(parts: Parts) -> None:
    try:
        counted = await letters.counts(parts)
    except AnchorWatchError:
        return
    # An alert compares a figure: that there is none open is said too.
    for service in {"observer", "planner", "executor", "memory", "notifier", *(each for each, _ in counted)}:
        for state in ("failing", "retried", "open"):
            parts.counters.letters.labels(service, state).set(counted.get((service, state), 0))


async def _lag(parts: Parts, stream: str) -> None:
    try:
        states = await parts.bus.consumer_states(stream)
    except AnchorWatchError:
        return
    for name, state in states.items():
        parts.counters.lag.labels(stream, name).set(state.pending + state.ack_pending)
