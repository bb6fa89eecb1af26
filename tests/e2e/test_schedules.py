"""A schedule on real processes: planner, gateway and NATS server are killed around its slot, and it comes once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from anchorwatch.bus.port import Bus
from anchorwatch.core.session.state import Input
from anchorwatch.testing.live import until

from tests.e2e.meshes import NO_FIRST_START, LiveMesh, Session, all_ready, running

MINUTE_S = 60.0
BEFORE_S = 1.0
# So long may it take to make the schedule.
MADE_S_MAX = 15.0


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[LiveMesh]:
    with running(tmp_path / "mesh", *NO_FIRST_START) as started:
        yield started


async def left_s(bus: Bus) -> float:
    """How much of the minute is left."""
    return MINUTE_S - await bus.server_time_ms() / 1000 % MINUTE_S


async def slots(session: Session) -> list[Input]:
    return [each for each in (await session.history()).inputs if each.source == "schedule"]


@pytest.mark.slow
async def test_slot_comes_once_though_planner_gateway_and_server_die(mesh: LiveMesh) -> None:
    async with mesh.bus() as bus:
        session = Session(mesh, bus, "clock")
        session.make()
        await session.ended(1)
        if await left_s(bus) < MADE_S_MAX:
            await asyncio.sleep(await left_s(bus))
        words = ("--session", "clock", "--cron", "* * * * *", "--zone", "Europe/Berlin", "--text", "count")
        made = json.loads(mesh.run("schedule", "create", "minutely", *words, "--json"))
        # Until a moment before the minute ends; then all that could see to the slot is killed.
        await asyncio.sleep(await left_s(bus) - BEFORE_S)
        for service in ("gateway", "planner", "nats"):
            mesh.kill(service)

        async def came() -> list[Input]:
            return await slots(session)

        found = await until(came, "the slot is an input", 30)
        mesh.kill("planner")
        history = await session.ended(2)
        assert found[0] in history.taken(2)
        mesh.run("schedule", "delete", "minutely")
        now = json.loads(mesh.run("schedule", "list", "--json"))
        assert now == []
        again = await slots(session)
    # On a slow machine the next minute may have come too.
    assert len({each.text for each in again}) == len(again)
    assert all(each.text.endswith(" Europe/Berlin: count") for each in again)
    assert made["next"][0]["slot"] in again[0].text
    await all_ready(mesh, "planner", 1)
    doctor = json.loads(mesh.run("doctor", "--json"))
    wakes = [check["state"] for check in doctor["checks"] if check["name"] in ("wakes", "schedules")]
    assert wakes == ["passed", "passed"]
