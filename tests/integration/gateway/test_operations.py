"""Health, readiness, metrics, events."""

from __future__ import annotations

import json

from anchorwatch.bus.port import ConsumerSpec, Message
from anchorwatch.topology.streams import StreamLimits

from tests.integration.gateway.conftest import AGENT, House
from tests.support.sessions import ScriptedSession
from tests.support.waiting import eventually


async def test_readiness_follows_memory(house: House) -> None:
    ready = await house.http.get("/readyz")
    assert ready.json()["checks"] == {
        "bus": "ok",
        "JOURNAL_0": "ok",
        "EVENTS": "ok",
        "TICKS": "ok",
        "DEAD": "ok",
        "memory": "ok",
    }
    await house.services.stop("memory-1")
    away = await house.http.get("/readyz")
    assert away.status_code == 503
    assert away.json()["checks"]["memory"] != "ok"
    assert (await house.http.get("/healthz")).status_code == 200
    reading = await house.http.get("/api/sessions")
    assert (reading.status_code, reading.json()["code"]) == (503, "unavailable")
    assert reading.headers["Retry-After"] == "1"
    await house.make_session()
    assert (await house.http.get("/api/sessions/fleet/anchor")).status_code == 200
    await house.services.start("memory")
    assert (await house.http.get("/readyz")).status_code == 200


async def test_metrics_count_inputs_requests_and_states(house: House) -> None:
    await house.make_session()
    session = ScriptedSession(house.bus)
    for _ in range(2):
        await house.http.post(
            "/api/sessions/fleet/inputs", json={"content": "a"}, headers={"Idempotency-Key": "k"}
        )
    await house.http.post(
        "/api/sessions/fleet/inputs", json={"content": "b"}, headers={"Idempotency-Key": "k"}
    )
    await session.acquire()
    await session.command("set")
    await house.bus.consumer(ConsumerSpec("JOURNAL_0", ("aw.journal.0.>",), "slow"))
    last = await house.bus.stream_state("JOURNAL_0")
    answer = await house.http.get(f"/api/sessions/fleet?at_least={last.last_sequence}")
    assert answer.status_code == 200
    text = (await house.http.get("/metrics")).text
    for line in (
        'anchorwatch_inputs_total{result="accepted"} 1.0',
        'anchorwatch_inputs_total{result="replayed"} 1.0',
        'anchorwatch_inputs_total{result="conflict"} 1.0',
        'anchorwatch_http_requests_total{method="POST",route="/api/sessions/{session}/inputs",status="202"} 2.0',
        'anchorwatch_sessions{status="active"} 1.0',
        'anchorwatch_effects{state="pending"} 1.0',
        "anchorwatch_runs_without_progress_max 0.0",
        "anchorwatch_damaged_records 0.0",
        "anchorwatch_memory_up 1.0",
        "anchorwatch_model_cost 0.0",
        f'anchorwatch_consumer_lag{{consumer="slow",stream="JOURNAL_0"}} {last.messages}.0',
    ):
        assert line in text.splitlines(), line


async def test_event_is_stored_as_a_cloudevent(house: House) -> None:
    event = {"source": "fleet", "type": "instance.dead", "data": {"id": "w-1"}, "priority": "P0", "id": "e-1"}
    first = await house.http.post("/api/events", json=event)
    assert first.status_code == 202
    assert first.json() == {"id": "e-1", "sequence": 1, "duplicate": False, "kill_switches": []}
    other = await house.http.post("/api/events?workspace=other", json=event)
    assert other.json()["duplicate"] is False
    page = await house.bus.last("EVENTS", ["aw.event.default.fleet.instance.dead"])
    stored = json.loads(page.messages[0].payload)
    assert {name: stored[name] for name in event} == event
    assert stored["specversion"] == "1.0"
    unnamed = [
        (await house.http.post("/api/events", json={**event, "id": None})).json()["id"] for _ in range(2)
    ]
    assert unnamed[0] != unnamed[1]


async def test_another_event_with_a_used_id_is_a_conflict(house: House) -> None:
    await house.http.put("/api/agents/keeper", json={**AGENT, "subscriptions": ["ops.>"]})
    await house.make_session()
    await house.services.start("observer")
    event = {"source": "ops", "type": "disk", "data": {"free": 0}, "id": "e1"}
    assert (await house.http.post("/api/events", json=event)).json()["duplicate"] is False

    async def accepted() -> bool:
        return await house.inputs_in_journal() == 1

    await eventually(accepted)
    again = await house.http.post("/api/events", json=event)
    assert (again.status_code, again.json()["duplicate"]) == (202, True)
    for change in ({"type": "fire"}, {"data": {"free": 1}}, {"priority": "P0"}):
        refused = await house.http.post("/api/events", json=event | change)
        assert (refused.status_code, refused.json()["code"]) == (409, "idempotency_conflict")
        assert "'e1'" in refused.json()["message"]
    # Published by other means, it reaches the observer, which cannot answer the publisher.
    fire = {"specversion": "1.0", "id": "e1", "source": "ops", "data": {}}
    await house.bus.publish(Message("aw.event.default.ops.fire", json.dumps(fire).encode()))

    async def listed() -> bool:
        return bool((await house.http.get("/api/sessions/fleet/wakes?disposition=refused")).json()["data"])

    await eventually(listed)
    (wake,) = (await house.http.get("/api/sessions/fleet/wakes?disposition=refused")).json()["data"]
    assert "another event used its id before" in json.dumps(wake)


async def test_invalid_or_oversized_event_is_refused(house: House) -> None:
    good = {"source": "fleet", "type": "instance.dead"}
    for bad in (
        {"source": "a.b"},
        {"source": "a b"},
        {"source": "*"},
        {"type": ">"},
        {"type": "a..b"},
        {"type": ""},
        {"id": "a\r\nNats-Rollup: all"},
        {"priority": "P3"},
    ):
        answer = await house.http.post("/api/events", json=good | bad)
        assert answer.status_code == 422, bad
    large = await house.http.post("/api/events", json={**good, "data": "x" * 300_000})
    assert (large.status_code, large.json()["code"]) == (413, "too_large")


async def test_full_stream_of_events_is_said_and_counted(house: House) -> None:
    event = {"source": "ops", "type": "disk", "data": "x" * 2_000}
    await house.services.start("observer", events_bytes_max=1024 * 1024)
    assert (await house.http.post("/api/events?workspace=nowhere", json=event)).status_code == 202

    async def counted() -> bool:
        text = (await house.http.get("/metrics")).text
        line = 'anchorwatch_events{observer="observer-1",outcome="unknown_workspace"} 1.0'
        return line in text.splitlines() and "anchorwatch_events_bytes_max 1.048576e+06" in text.splitlines()

    await eventually(counted, 60)
    await house.services.stop("observer-1")
    await house.bus.set_limits("EVENTS", StreamLimits(bytes_max=2_500))
    refused = await house.http.post("/api/events", json=event)
    assert (refused.status_code, refused.json()["code"]) == (503, "stream_full")
    assert "anchorwatch doctor" in refused.json()["hint"]


async def test_openapi_names_every_endpoint(house: House) -> None:
    paths = (await house.http.get("/openapi.json")).json()["paths"]
    for method, path in (
        ("post", "/api/events"),
        ("post", "/api/sessions"),
        ("post", "/api/sessions/{session}/inputs"),
        ("post", "/api/sessions/{session}/trigger"),
        ("get", "/api/sessions"),
        ("get", "/api/sessions/{session}"),
        ("get", "/api/sessions/{session}/anchor"),
        ("get", "/api/sessions/{session}/turns"),
        ("get", "/api/sessions/{session}/turns/{turn}"),
        ("get", "/api/sessions/{session}/items"),
        ("get", "/api/sessions/{session}/timeline"),
        ("get", "/api/sessions/{session}/wakes"),
        ("get", "/api/sessions/{session}/stream"),
        ("get", "/api/effects"),
        ("get", "/api/deliveries"),
        ("get", "/api/artifacts"),
        ("get", "/api/artifacts/{artifact}/content"),
        ("get", "/api/memories"),
        ("get", "/api/agents"),
        ("put", "/api/agents/{name}"),
        ("get", "/healthz"),
        ("get", "/readyz"),
        ("get", "/metrics"),
    ):
        assert method in paths[path], path


async def test_agent_that_exceeds_its_context_is_refused(house: House) -> None:
    small = {**AGENT, "limits": {"context_tokens_max": 256}}
    refused = await house.http.put("/api/agents/keeper", json=small)
    assert (refused.status_code, refused.json()["code"]) == (422, "bad_input")
    assert "of the 256 tokens of a request; the limit is 192" in refused.json()["message"]
    assert (await house.http.get("/api/agents/keeper")).json()["limits"]["context_tokens_max"] is None


async def test_agent_with_invalid_limits_is_refused(
    house: House,
) -> None:
    misspelt = await house.http.put("/api/agents/keeper", json={**AGENT, "limits": {"turns_per_huor": 5}})
    assert misspelt.status_code == 422
    assert "limits.turns_per_huor" in misspelt.json()["message"]
    assert "turns_per_hour" in misspelt.json()["hint"]
    for given, field in (
        ({"heartbeat_s": 1e13}, "heartbeat_s"),
        ({"limits": {"turns_per_hour": True}}, "limits.turns_per_hour"),
        ({"limits": {"waiting_max": 10**12}}, "limits.waiting_max"),
        ({"config": {"idle_s": 1e300}}, "config.idle_s"),
    ):
        refused = await house.http.put("/api/agents/keeper", json={**AGENT, **given})
        assert (refused.status_code, refused.json()["code"]) == (422, "bad_input")
        assert field in refused.json()["message"]
