"""The NATS server is killed and comes back while clients write and watch."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2

from tests.integration.gateway.conftest import House
from tests.support.nats_server import NatsServer

INPUTS = 60


async def insist(house: House, key: str) -> dict[str, Any]:
    """Post until there is a receipt, as a client should."""
    while True:
        answer = await house.http.post(
            "/api/sessions/fleet/inputs", json={"content": f"look {key}"}, headers={"Idempotency-Key": key}
        )
        if answer.status_code == httpx2.codes.ACCEPTED:
            receipt: dict[str, Any] = answer.json()
            return receipt
        assert answer.status_code == httpx2.codes.SERVICE_UNAVAILABLE, answer.text
        assert answer.headers["Retry-After"] == "1"


async def test_restarts_lose_no_input_and_no_stream_record(house: House, server: NatsServer) -> None:
    await house.make_session()
    seen: list[int] = []
    complete = asyncio.Event()

    async def watch() -> None:
        async with house.http.stream("GET", "/api/sessions/fleet/stream", params={"after": "1"}) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    seen.append(json.loads(line.removeprefix("data: "))["sequence"])
                if len(seen) >= INPUTS:
                    complete.set()
                    return

    watching = asyncio.create_task(watch())
    posts = []
    for n in range(INPUTS):
        posts.append(asyncio.create_task(insist(house, f"k-{n}")))
        await asyncio.sleep(0)
        if n == INPUTS // 2:
            await asyncio.to_thread(server.restart)
    receipts = await asyncio.gather(*posts)
    assert await house.inputs_in_journal() == INPUTS
    again = await asyncio.gather(*(insist(house, f"k-{n}") for n in range(INPUTS)))
    assert [each["sequence"] for each in again] == [each["sequence"] for each in receipts]
    assert all(each["replayed"] for each in again)
    async with asyncio.timeout(20):
        await complete.wait()
        await watching
    assert seen == sorted(each["sequence"] for each in receipts)
