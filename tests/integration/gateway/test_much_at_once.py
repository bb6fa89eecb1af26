"""Many who order the same thing at once, under one key: one order, one receipt, and nobody is sent away."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from tests.integration.gateway.conftest import TOKEN, House
from tests.support.sessions import ScriptedSession

AT_ONCE = 200
SCHEDULE = {"name": "morning", "session": "fleet", "cron": "0 7 * * *"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("sessions/fleet/reset", {"confirmation": None}),
        ("sessions/fleet/cancel", {"turn": "31"}),
        ("sessions/fleet/objectives", {"change": "add", "items": ["o"]}),
        ("sessions/fleet/inputs", {"content": "look"}),
        ("kill-switches", {"on": True, "scope": "session", "name": "fleet"}),
        ("schedules", SCHEDULE),
    ],
)
async def test_many_orders_under_one_key_run_once(house: House, path: str, body: dict[str, Any]) -> None:
    await house.make_session()
    session = ScriptedSession(house.bus)
    for _ in range(30):
        await session.acquire()
        await session.end("failed", "nobody answers")
    await session.acquire()
    client = httpx2.AsyncClient(
        base_url=house.url,
        headers={"Authorization": f"Bearer {TOKEN}", "Idempotency-Key": "one"},
        timeout=60.0,
        limits=httpx2.Limits(max_connections=AT_ONCE),
    )
    async with client:
        answers = await asyncio.gather(*(client.post(f"/api/{path}", json=body) for _ in range(AT_ONCE)))
        assert {each.status_code for each in answers} <= {200, 201, 202}, {each.text for each in answers}
        answer = [each.json() for each in answers]
        assert len({each["sequence"] for each in answer}) == 1
        assert sum(not each["replayed"] for each in answer) == 1
        other = await client.post(f"/api/{path}", json={**body, "reason": "another"})
        assert other.status_code in (409, 422), other.text
