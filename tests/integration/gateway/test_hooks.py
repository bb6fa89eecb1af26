"""Alerts over ``POST /hooks/NAME``: signed, deduplicated by their fingerprint, and answered one by one."""

from __future__ import annotations

import hmac
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from anchorwatch.bus.port import Bus

from tests.integration.gateway.conftest import AGENT, TOKEN, House
from tests.support.in_process import Services
from tests.support.openapi import check_answer
from tests.support.waiting import eventually
from tests.unit.service.test_hooks import ALERTMANAGER, GITHUB, GRAFANA, RESOLVED

SECRET = "a secret of the other system"
SIGNED = {"Authorization": f"Bearer {SECRET}"}
FILE = f"""
[[hook]]
name = "alerts"
kind = "alertmanager"
signature = "bearer"
secret = "{SECRET}"
event = '{{"subject": alert.labels.instance}}'

[[hook]]
name = "graphs"
kind = "grafana"
signature = "open"
workspace = "other"

[[hook]]
name = "code"
kind = "github"
source = "github"
signature = "github"
secret = "{SECRET}"
"""


@pytest.fixture
async def hooked(services: Services, bus: Bus, tmp_path: Path) -> AsyncIterator[House]:
    """A gateway with hooks, an observer, and a session that wants every alert."""
    file = tmp_path / "hooks.toml"
    file.write_text(FILE)
    made = House(services, bus)
    await services.start("memory")
    await services.start("gateway", port=0, token=TOKEN, hooks=file)
    api = {"Authorization": f"Bearer {TOKEN}"}
    made.http = httpx2.AsyncClient(base_url=made.url, timeout=100.0, event_hooks={"response": [check_answer]})
    agent = {**AGENT, "subscriptions": ["alerts.>", "github.>"]}
    for method, path, body in (
        ("PUT", "/api/agents/keeper", agent),
        ("POST", "/api/sessions", {"name": "fleet", "agent": "keeper"}),
    ):
        answer = await made.http.request(method, path, json=body, headers=api)
        assert answer.is_success, answer.text
    await services.start("observer", probe_interval_s=60)
    yield made
    await made.http.aclose()


async def post(house: House, hook: str, body: object, headers: dict[str, str]) -> httpx2.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await house.http.post(f"/hooks/{hook}", content=content, headers=headers)


async def listed(house: House) -> dict[str, dict[str, Any]]:
    answer = await house.http.get("/api/hooks", headers={"Authorization": f"Bearer {TOKEN}"})
    return {each["name"]: each for each in answer.json()["data"]}


async def taken(house: House, count: int) -> None:
    """Wait until the session has this number of inputs."""

    async def arrived() -> bool:
        return await house.inputs_in_journal() == count

    await eventually(arrived)


async def test_repeated_alert_is_one_event_and_its_end_another(hooked: House) -> None:
    first = await post(hooked, "alerts", ALERTMANAGER, SIGNED)
    assert first.status_code == 202
    (event,) = first.json()["events"]
    assert event["duplicate"] is False
    await taken(hooked, 1)
    newer = {**ALERTMANAGER["alerts"][0], "annotations": {"description": "99.9 % used"}}
    again = await post(hooked, "alerts", {**ALERTMANAGER, "alerts": [newer]}, SIGNED)
    assert (again.status_code, again.json()["events"][0]["duplicate"]) == (202, True)
    end = await post(hooked, "alerts", {**ALERTMANAGER, "alerts": [newer, RESOLVED]}, SIGNED)
    assert [each["duplicate"] for each in end.json()["events"]] == [True, False]
    await taken(hooked, 2)
    page = await hooked.bus.last("EVENTS", ["aw.event.default.alerts.alert.resolved"])
    resolved = json.loads(page.messages[0].payload)
    assert (resolved["status"], resolved["fingerprint"]) == ("resolved", RESOLVED["fingerprint"])
    assert resolved["subject"] == "db-7:9100"

    async def shown_to_people() -> bool:
        api = {"Authorization": f"Bearer {TOKEN}"}
        answer = await hooked.http.get("/api/sessions/fleet/wakes", headers=api)
        texts = [each["text"] for each in answer.json()["data"] if each["kind"] == "event"]
        return ['"status":"resolved"' in text for text in texts] == [False, True]

    await eventually(shown_to_people)
    shown = (await listed(hooked))["alerts"]
    assert (shown["requests"], shown["events"], shown["refused"]) == (3, 2, 0)


async def test_each_system_is_accepted_with_its_own_signature(hooked: House) -> None:
    graphs = await post(hooked, "graphs", GRAFANA, {})
    assert graphs.status_code == 202
    assert (await hooked.bus.last("EVENTS", ["aw.event.other.graphs.alert.firing"])).messages
    body = json.dumps(GITHUB).encode()
    signature = "sha256=" + hmac.digest(SECRET.encode(), body, "sha256").hex()
    delivery = {
        "X-GitHub-Event": "issues",
        "X-GitHub-Delivery": "72d3162e-cc78",
        "X-Hub-Signature-256": signature,
    }
    for duplicate in (False, True):
        answer = await post(hooked, "code", body, delivery)
        assert (answer.status_code, answer.json()["events"][0]["duplicate"]) == (202, duplicate)
        await taken(hooked, 1)


async def test_request_without_a_valid_signature_stores_nothing(hooked: House) -> None:
    for hook, headers in (
        ("alerts", {}),
        ("alerts", {"Authorization": f"Bearer {TOKEN}"}),
        ("alerts", {"Authorization": "Bearer wrong"}),
        ("code", {"X-Hub-Signature-256": "sha256=00", "X-GitHub-Event": "push"}),
    ):
        answer = await post(hooked, hook, ALERTMANAGER, headers)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
    assert not (await hooked.bus.last("EVENTS", ["aw.event.>"])).messages
    shown = (await listed(hooked))["alerts"]
    assert (shown["refused"], shown["last_refusal"]["code"]) == (3, "unauthorized")
    # The secret of a hook opens no other door.
    assert (await hooked.http.get("/api/hooks", headers=SIGNED)).status_code == 401


async def test_alert_that_cannot_be_mapped_stops_no_other(hooked: House) -> None:
    odd = {**ALERTMANAGER["alerts"][0], "labels": {"alertname": "Odd"}}
    answer = await post(hooked, "alerts", {"alerts": [odd, *ALERTMANAGER["alerts"]]}, SIGNED)
    assert answer.status_code == 207
    first, second = answer.json()["events"]
    assert first["error"]["message"] == "hook alerts: the alert has no field 'instance'"
    assert second["sequence"] > 0
    alone = await post(hooked, "alerts", {"alerts": [odd]}, SIGNED)
    assert (alone.status_code, alone.json()["code"]) == (422, "bad_input")


@pytest.mark.parametrize(
    ("hook", "body", "headers", "status"),
    [
        ("unknown", {}, {}, 404),
        ("graphs", b"{", {}, 400),
        ("graphs", [], {}, 422),
        ("graphs", b"payload=%7B%7D", {"Content-Type": "application/x-www-form-urlencoded"}, 400),
        ("graphs", b" " * 1_100_000, {}, 413),
        ("graphs", {**GRAFANA, "alerts": [{**GRAFANA["alerts"][0], "more": "x" * 300_000}]}, {}, 413),
        ("graphs", {"alerts": []}, {}, 202),
    ],
)
async def test_other_request_stores_nothing(
    hooked: House, hook: str, body: object, headers: dict[str, str], status: int
) -> None:
    answer = await post(hooked, hook, body, headers)
    assert answer.status_code == status, answer.text
    assert not (await hooked.bus.last("EVENTS", ["aw.event.>"])).messages


async def test_hooks_are_listed_without_their_secrets(hooked: House) -> None:
    answer = await hooked.http.get("/api/hooks", headers={"Authorization": f"Bearer {TOKEN}"})
    assert SECRET not in answer.text
    assert [(each["path"], each["signature"], each["workspace"]) for each in answer.json()["data"]] == [
        ("/hooks/alerts", "bearer", "default"),
        ("/hooks/code", "github", "default"),
        ("/hooks/graphs", "open", "other"),
    ]
