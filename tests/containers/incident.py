"""An incident, seen from outside the mesh: an event goes in by NATS, and what came of it is read from the HTTP API."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any
from uuid import uuid4

import nats
from nats.errors import Error

from tests.containers.compose import ELECTION_S_MAX, Mesh, eventually

SESSION = "fleet"
SUBJECT = "aw.event.default.fleet.instance.dead"
TURN_S_MAX = 60.0
RETRY_S = 0.2


async def publish(mesh: Mesh, instance: str) -> None:
    """What any program outside would do: a plain client, the publisher's credentials, a JSON body, one id for all tries."""
    client = await nats.connect(
        mesh.nats_url, user="publisher", password=mesh.read_secret("credentials/publisher")
    )
    body = json.dumps({"instance": instance, "priority": "P0"}).encode()
    headers = {"Nats-Msg-Id": uuid4().hex}
    deadline = time.monotonic() + ELECTION_S_MAX
    try:
        while True:
            try:
                ack = json.loads((await client.request(SUBJECT, body, timeout=2, headers=headers)).data)
            except Error as error:
                ack = {"error": repr(error)}
            if "error" not in ack:
                return
            assert time.monotonic() < deadline, ack
            await asyncio.sleep(RETRY_S)
    finally:
        await client.close()


def turn_about(mesh: Mesh, instance: str) -> dict[str, Any]:
    """The anchor, once the turn has ended that took up the event about this instance."""
    wakes = eventually(
        lambda: [
            wake for wake in mesh.api(f"/api/sessions/{SESSION}/wakes")["data"] if instance in wake["text"]
        ],
        lambda seen: any(wake["disposition"] == "ran" for wake in seen),
        TURN_S_MAX,
    )
    assert len(wakes) == 1
    anchor: dict[str, Any] = eventually(
        lambda: mesh.api(f"/api/sessions/{SESSION}/anchor"),
        lambda seen: seen["run_count"] >= wakes[0]["run_id"] and seen["status"] == "idle",
        TURN_S_MAX,
    )
    return anchor
