"""No consumer of the mesh has a delivery limit: the server would strand the message without a notification."""

from __future__ import annotations

import json
from pathlib import Path

from anchorwatch.bus.port import Bus
from anchorwatch.topology.streams import STREAMS

from tests.support.in_process import services_on
from tests.support.nats_server import NatsServer

SERVICES = ("observer", "planner", "executor", "memory", "notifier", "gateway")


async def test_every_consumer_delivers_without_a_limit(server: NatsServer, bus: Bus, tmp_path: Path) -> None:
    async with services_on(server.url, tmp_path) as services:
        for service in SERVICES:
            await services.start(service, port=0, token="a token for tests")
        limits: dict[str, int] = {}
        for spec in STREAMS:
            reply = await bus.request(f"$JS.API.CONSUMER.LIST.{spec.name}", b"{}", 5.0)
            for consumer in json.loads(reply)["consumers"] or ():
                limits[f"{spec.name}/{consumer['name']}"] = consumer["config"].get("max_deliver", -1)
    assert set(limits.values()) == {-1}, limits
    expected = {
        "EVENTS/observer",
        "JOURNAL_0/planner",
        "TICKS/planner-ticks",
        "JOURNAL_0/planner-schedules",
        "TICKS/planner-slots",
        "JOURNAL_0/executor-default",
        "JOURNAL_0/executor-memory",
        "JOURNAL_0/memory-memory-1",
        "JOURNAL_0/notifier",
        "DEAD/notifier-letters",
        "DEAD/dead-observer",
        "DEAD/dead-planner",
        "DEAD/dead-executor-default",
        "DEAD/dead-executor-memory",
        "DEAD/dead-memory-memory-1",
        "DEAD/dead-notifier-journal_0",
        "DEAD/dead-notifier-dead",
    }
    assert set(limits) >= expected
