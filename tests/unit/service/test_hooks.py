"""Hooks map the alerts of other systems, and a file of hooks that cannot work is refused when it is read."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.core.errors import BadInput, BadSettings
from anchorwatch.service.hooks import Hook, MissingField, load
from hypothesis import given
from hypothesis import strategies as st

ALERTMANAGER: dict[str, Any] = {
    "version": "4",
    "groupKey": '{}:{alertname="DiskFull"}',
    "truncatedAlerts": 0,
    "status": "firing",
    "receiver": "anchorwatch",
    "groupLabels": {"alertname": "DiskFull"},
    "commonLabels": {"alertname": "DiskFull", "severity": "critical"},
    "commonAnnotations": {"summary": "a disk is full"},
    "externalURL": "http://alertmanager.example.org:9093",
    "alerts": [
        {
            "status": "firing",
            "labels": {"alertname": "DiskFull", "severity": "critical", "instance": "db-7:9100"},
            "annotations": {"summary": "a disk is full", "description": "98.2 % used"},
            "startsAt": "2026-03-17T18:56:43.739266876Z",
            "endsAt": "0001-01-01T00:00:00Z",
            "generatorURL": "http://prometheus.example.org:9090/graph",
            "fingerprint": "1a30ba71cca2921f",
        }
    ],
}
RESOLVED: dict[str, Any] = {
    **ALERTMANAGER["alerts"][0],
    "status": "resolved",
    "endsAt": "2026-03-17T19:20:00Z",
}
GRAFANA: dict[str, Any] = {
    "receiver": "anchorwatch",
    "status": "firing",
    "orgId": 1,
    "alerts": [
        {
            "status": "firing",
            "labels": {"alertname": "High memory usage", "team": "blue", "zone": "us-1"},
            "annotations": {"description": "The system has high memory usage"},
            "startsAt": "2026-03-12T09:51:03.157076+02:00",
            "endsAt": "0001-01-01T00:00:00Z",
            "generatorURL": "https://grafana.example.org/alerting/1afz29v7z/edit",
            "fingerprint": "c6eadffa33fcdf37",
            "silenceURL": "https://grafana.example.org/alerting/silence/new",
            "dashboardURL": "",
            "panelURL": "",
            "values": {"B": 44.23943737541908, "C": 1},
        }
    ],
    "groupLabels": {},
    "commonLabels": {"team": "blue"},
    "commonAnnotations": {},
    "externalURL": "https://grafana.example.org/",
    "version": "1",
    "groupKey": "{}:{}",
    "truncatedAlerts": 0,
    "title": "[FIRING:1] High memory usage blue",
    "state": "alerting",
    "message": "**Firing**",
}
GITHUB: dict[str, Any] = {
    "action": "opened",
    "issue": {
        "number": 1347,
        "title": "it is broken",
        "html_url": "https://github.com/octo/hello/issues/1347",
    },
    "repository": {"id": 1296269, "full_name": "octo/hello"},
    "sender": {"login": "octocat", "id": 1},
}
GITHUB_HEADERS = {
    "x-github-event": "issues",
    "x-github-delivery": "72d3162e-cc78-11e3-81ab-4c9367dc0958",
    "authorization": "Bearer a secret",
}


def hook(kind: str, event: str = "{}", **more: str) -> Hook:
    return Hook.model_validate({"name": "h", "kind": kind, "signature": "open", "event": event, **more})


def mapped(made: Hook, body: Any, headers: dict[str, str] | None = None) -> list[dict[str, Any]]:
    alerts, rest = made.alerts(body)
    events = [made.event_of(alert, rest, headers or {}) for alert in alerts]
    return [dict(event.attributes) | {"data": event.data} for event in events]


def test_alert_of_alertmanager_becomes_an_event() -> None:
    (event,) = mapped(hook("alertmanager"), ALERTMANAGER)
    assert event == {
        "specversion": "1.0",
        "id": "1a30ba71cca2921f/firing/2026-03-17T18:56:43.739266876Z",
        "source": "/hooks/h",
        "type": "alert.firing",
        "status": "firing",
        "time": "2026-03-17T18:56:43.739266876Z",
        "subject": "DiskFull",
        "priority": "P0",
        "fingerprint": "1a30ba71cca2921f",
        "datacontenttype": "application/json",
        "data": ALERTMANAGER["alerts"][0],
    }


def test_resolved_alert_says_so_and_has_the_fingerprint() -> None:
    firing, resolved = mapped(
        hook("alertmanager"), {**ALERTMANAGER, "alerts": [*ALERTMANAGER["alerts"], RESOLVED]}
    )
    assert (resolved["type"], resolved["status"], resolved["priority"]) == (
        "alert.resolved",
        "resolved",
        "P1",
    )
    assert resolved["time"] == RESOLVED["endsAt"]
    assert resolved["fingerprint"] == firing["fingerprint"]
    assert resolved["id"] != firing["id"]


def test_repetition_with_newer_texts_has_the_same_id() -> None:
    later = copy.deepcopy(ALERTMANAGER)
    later["alerts"][0]["annotations"]["description"] = "99.1 % used"
    assert mapped(hook("alertmanager"), later)[0]["id"] == mapped(hook("alertmanager"), ALERTMANAGER)[0]["id"]
    later["alerts"][0]["startsAt"] = "2026-03-18T00:00:00Z"
    assert mapped(hook("alertmanager"), later)[0]["id"] != mapped(hook("alertmanager"), ALERTMANAGER)[0]["id"]


def test_alert_of_grafana_becomes_an_event() -> None:
    (event,) = mapped(hook("grafana", '{"priority": alert.values.B > 40.0 ? "P0" : "P2"}'), GRAFANA)
    assert (event["type"], event["subject"], event["priority"]) == (
        "alert.firing",
        "High memory usage",
        "P0",
    )
    assert event["data"]["values"] == {"B": 44.23943737541908, "C": 1}


def test_delivery_of_github_becomes_an_event() -> None:
    line = '{"subject": body == {} ? alert.repository.full_name : "", "data": {"title": alert.issue.title}}'
    (event,) = mapped(hook("github", line), GITHUB, GITHUB_HEADERS)
    assert (event["type"], event["id"]) == ("issues.opened", GITHUB_HEADERS["x-github-delivery"])
    assert (event["subject"], event["data"]) == ("octo/hello", {"title": "it is broken"})
    (push,) = mapped(hook("github"), {"ref": "refs/heads/main"}, {**GITHUB_HEADERS, "x-github-event": "push"})
    assert push["type"] == "push"


def test_mapping_sees_no_credentials() -> None:
    with pytest.raises(MissingField, match="authorization"):
        mapped(hook("github", '{"subject": headers["authorization"]}'), GITHUB, GITHUB_HEADERS)


def test_mapping_reads_the_rest_of_the_body() -> None:
    (event,) = mapped(hook("alertmanager", '{"subject": body.receiver + " " + body.version}'), ALERTMANAGER)
    assert event["subject"] == "anchorwatch 4"


@pytest.mark.parametrize(
    ("kind", "event", "body", "reason"),
    [
        ("alertmanager", "{}", [], "no list `alerts`"),
        ("grafana", "{}", {"alerts": {}}, "no list `alerts`"),
        ("alertmanager", "{}", {"alerts": [{}]}, "the alert has no field 'status'"),
        ("alertmanager", '{"priority": "high"}', ALERTMANAGER, "the priority 'high'"),
        ("alertmanager", '{"subject": "a\\nb"}', ALERTMANAGER, r"subject contains the character U\+000A"),
        ("json", '{"type": alert.kind, "fingerprint": ""}', {"kind": "x"}, "no text for 'fingerprint'"),
        ("json", '{"type": 1, "fingerprint": "f"}', {}, "no text for 'type'"),
        ("json", "alert.n + 1", {"n": "x"}, "Unsupported operation"),
        ("json", '{"type": alert[0], "fingerprint": "f"}', 7, "mapping of hook h"),
    ],
)
def test_alert_that_cannot_be_mapped_is_refused(kind: str, event: str, body: Any, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        mapped(hook(kind, event), body)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.text(max_size=10),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from([*ALERTMANAGER["alerts"][0], "alerts"]), inner, max_size=4)
        ),
        max_leaves=10,
    )
)
def test_any_body_is_mapped_or_refused(body: Any) -> None:
    for kind in ("alertmanager", "github"):
        try:
            events = mapped(hook(kind), body, GITHUB_HEADERS)
        except BadInput:
            continue
        assert all(event["fingerprint"] for event in events)


# ---------------------------------------------------------------- the file

GOOD = """
[[hook]]
name = "alerts"
kind = "alertmanager"
signature = "bearer"
secret_file = "alerts.secret"
"""


def test_file_of_hooks_is_read_with_its_secrets(tmp_path: Path) -> None:
    (tmp_path / "alerts.secret").write_text("0123456789abcdef\n")
    (tmp_path / "hooks.toml").write_text(GOOD)
    (made,) = load(tmp_path / "hooks.toml").values()
    assert made.secret is not None
    assert made.secret.get_secret_value() == "0123456789abcdef"
    assert "0123456789abcdef" not in repr(made) + str(made)
    assert load(None) == {}


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ('kind = "json"', "has no signature"),
        ('kind = "json"\nsignature = "bearer"', "needs a secret"),
        ('kind = "grafana"\nsignature = "open"\nsecret = "s"', "is open, and has a secret"),
        ('kind = "nagios"\nsignature = "open"', "kind must be alertmanager"),
        ('kind = "grafana"\nsignature = "bearer"\nsecret = "short"', "too short"),
        ('kind = "grafana"\nsignature = "standard-webhooks"\nsecret = "!"', "secret of hook a is invalid"),
        ('kind = "grafana"\nsignature = "github"\nsecret_file = "none"', "secret of hook a cannot be read"),
        ('kind = "grafana"\nsignature = "open"\ntypo = 1', "typo is not a known field"),
        ('kind = "json"\nsignature = "open"', "gives no text for 'type'"),
        ('kind = "grafana"\nsignature = "open"\nevent = "{"', "is not valid CEL"),
        ("kind = 'grafana'\nsignature = 'open'\nevent = '{\"type\": alrt.status}'", "'alrt'"),
        ("kind = 'grafana'\nsignature = 'open'\nevent = '{\"tpye\": alert.status}'", "gives tpye"),
        ("kind = 'grafana'\nsignature = 'open'\nevent = 'alert.status'", "gives 'firing'"),
        (
            'kind = "github"\nsignature = "open"\n[[hook]]\nname = "a"\nkind = "github"\nsignature = "open"',
            "two",
        ),
        ("kind = ", "cannot be read"),
    ],
)
def test_file_that_cannot_work_is_refused(tmp_path: Path, lines: str, reason: str) -> None:
    file = tmp_path / "hooks.toml"
    file.write_text(f'[[hook]]\nname = "a"\n{lines}\n')
    with pytest.raises(BadSettings, match=reason) as refused:
        load(file)
    assert str(file) in refused.value.message
