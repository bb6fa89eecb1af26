"""Observations on request, and probes that publish what changed."""

from __future__ import annotations

import asyncio
import json

import pytest
from anchorwatch.bus.port import Bus
from anchorwatch.codec import decode
from anchorwatch.core.errors import Unavailable
from anchorwatch.core.names import SessionRef
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.service.observations import ask, observe
from anchorwatch.topology.subjects import SessionSubjects
from anchorwatch_observer.main import run

from tests.support.packs import Sink
from tests.support.services import Running, make_context
from tests.support.waiting import eventually

ANSWERED_S = 30.0


async def events(bus: Bus) -> list[dict[str, object]]:
    page = await bus.range("EVENTS", "aw.event.>", 1)
    return [json.loads(stored.payload) for stored in page.messages]


@pytest.mark.usefixtures("observer", "fleet")
async def test_request_is_answered_with_an_observation(bus: Bus, sink: Sink) -> None:
    sink.set_world(ready=True, at_ms=42)

    async def ready() -> bool:
        return (await ask(bus, "default", "keeper", ANSWERED_S)).facts["ready"] is True

    await eventually(ready)
    seen = await ask(bus, "default", "keeper", ANSWERED_S)
    assert (seen.facts, seen.at_ms) == ({"ready": True, "dead": None}, 42)
    assert len(seen.digest) == 64


@pytest.mark.usefixtures("observer", "fleet")
async def test_slow_pack_makes_every_fact_unknown(bus: Bus, sink: Sink) -> None:
    sink.set_world(ready=True, slow_s=60)

    async def slow() -> bool:
        seen = await observe(bus, "default", "keeper", 5.0, now_ms=7, names=("ready",))
        return "longer than 3 s" in seen.text and seen.facts == {"ready": None} and not seen.digest

    await eventually(slow)


async def test_missing_observer_is_unavailable_at_once(bus: Bus) -> None:
    with pytest.raises(Unavailable):
        await ask(bus, "default", "keeper", ANSWERED_S)
    seen = await observe(bus, "default", "keeper", 2.0, now_ms=7, names=("ready", "dead"))
    assert seen.unknown == ("ready", "dead")


@pytest.mark.usefixtures("observer")
async def test_unknown_agent_is_reported(bus: Bus) -> None:
    with pytest.raises(Unavailable, match="unknown agent 'nobody'"):
        await ask(bus, "default", "nobody", ANSWERED_S)


@pytest.mark.usefixtures("observer", "fleet")
async def test_change_is_published_once_and_becomes_an_input(bus: Bus, sink: Sink, fleet: SessionRef) -> None:
    sink.set_world(dead="w-1")

    async def accepted() -> bool:
        page = await bus.last("JOURNAL_0", [SessionSubjects(fleet).everything])
        return bool(page.messages)

    await eventually(accepted)
    (event,) = await events(bus)
    assert (event["source"], event["type"], event["priority"]) == ("/default/bench", "thing.dead", "P0")
    page = await bus.last("JOURNAL_0", [SessionSubjects(fleet).everything])
    record = decode(page.messages[0].payload)
    assert (record.body["priority"], record.body["data"]) == (0, {"name": "w-1"})
    sink.set_world(dead="w-2")

    async def two() -> bool:
        return len(await events(bus)) == 2

    await eventually(two)


@pytest.mark.usefixtures("fleet")
async def test_second_observer_takes_over_the_probe(bus: Bus, sink: Sink, running: Running) -> None:
    first = await running.start(
        run, make_context(bus, "observer", "observer-1", probe_interval_s=0.05, lease_s=1)
    )
    second = await running.start(
        run, make_context(bus, "observer", "observer-2", probe_interval_s=0.05, lease_s=1)
    )
    del second
    sink.set_world(dead="w-1")

    async def published(count: int) -> bool:
        return len(await events(bus)) == count

    await eventually(lambda: published(1))
    await running.kill(first)
    sink.set_world(dead="w-2")
    await eventually(lambda: published(2))


@pytest.mark.usefixtures("fleet")
async def test_new_agent_is_observed_without_a_restart(
    bus: Bus, running: Running, agents: AgentDirectory, sink: Sink
) -> None:
    sink.set_world(ready=False)
    await running.start(run, make_context(bus, "observer", probe_interval_s=0.05))
    spec = await agents.get("default", "keeper")
    await agents.apply("default", spec.model_copy(update={"name": "second"}))
    answers = await asyncio.gather(*(ask(bus, "default", "second", ANSWERED_S) for _ in range(20)))
    assert {answer.digest for answer in answers} == {answers[0].digest}
