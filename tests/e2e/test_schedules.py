"""A schedule on real processes: planner, gateway and NATS server are killed around its slot, and it comes once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from anchorwatch.cli.demo.watch import until
from anchorwatch.core.session.state import Input

from tests.e2e.meshes import NO_FIRST_START, LiveMesh, Session, all_ready, running

MINUTE_S = 60.0
BEFORE_S = 1.0


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[LiveMesh]:
    with running(tmp_path / "mesh", *NO_FIRST_START) as started:
        yield started


async def slots(session: Session) -> list[Input]:
    return [each for each in (await session.history()).inputs if each.source == "schedule"]


@pytest.mark.slow
async def test_with_planner_gateway_and_server_killed_around_its_slot_it_comes_once(mesh: LiveMesh) -> None:
    async with mesh.bus() as bus:
        session = Session(mesh, bus, "clock")
        session.make()
        await session.ended(1)
        words = ("--session", "clock", "--cron", "* * * * *", "--zone", "Europe/Berlin", "--text", "count")
        made = json.loads(mesh.run("schedule", "create", "minutely", *words, "--json"))
        slot_ms = await bus.server_time_ms()
        # Until a moment before the minute ends; then all that could see to the slot is killed.
        left_s = MINUTE_S - slot_ms / 1000 % MINUTE_S
        await asyncio.sleep(left_s - BEFORE_S if left_s > BEFORE_S else left_s + MINUTE_S - BEFORE_S)
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
    assert len(again) == 1
    assert again[0].text.endswith(" Europe/Berlin: count")
    assert made["next"][0]["slot"] in again[0].text
    await all_ready(mesh, "planner", 1)
    doctor = json.loads(mesh.run("doctor", "--json"))
    wakes = [check["state"] for check in doctor["checks"] if check["name"] in ("wakes", "schedules")]
    assert wakes == ["passed", "passed"]
