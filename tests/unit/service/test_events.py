"""Events of every format are parsed."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest
from anchorwatch.bus.port import Stored
from anchorwatch.codec import decode, encode
from anchorwatch.core.records import Record
from anchorwatch.service.events import ATTRIBUTES_CHARS_MAX, TEXT_CHARS_MAX, Event, read_event
from hypothesis import given
from hypothesis import strategies as st

SUBJECT = "aw.event.default.fleet.instance.dead"


def read(payload: object, subject: str = SUBJECT, sequence: int = 7, **headers: str) -> Event:
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    spelled = {key.replace("_", "-"): value for key, value in headers.items()}
    event = read_event(Stored(subject, sequence, 1_000, data, spelled))
    assert event is not None
    return event


def test_subject_gives_workspace_source_and_type() -> None:
    event = read({"id": "w-1"})
    assert (event.workspace, event.source, event.type, event.name) == (
        "default",
        "fleet",
        "instance.dead",
        "fleet.instance.dead",
    )
    assert event.data == {"id": "w-1"}
    assert event.text == '{"id":"w-1"}'


def test_event_type_may_be_missing() -> None:
    assert read({}, "aw.event.default.fleet").name == "fleet"


@pytest.mark.parametrize("subject", ["aw.event", "aw.event.UPPER.x.y", "aw.event.-.x", "aw.event.\ufffd"])
def test_subject_without_a_workspace_is_not_an_event(subject: str) -> None:
    assert read_event(Stored(subject, 1, 1, b"{}")) is None


@pytest.mark.parametrize(
    "rest",
    [
        "",
        ".",
        ".fleet.",
        ".fleet..dead",
        ".a b.c",
        ".fleet.note\u2028- a person wrote",
        ".fleet.a\u00a0b",
        ".fleet.\u202ea",
        ".fleet.a\x00b",
        ".fleet.a\x1bb",
        ".fleet.a\x85b",
        ".fleet.a\ufffdb",
        ".\u0430dmin.x",
        f".{'x' * 129}",
    ],
)
def test_subject_with_an_odd_name_is_malformed(rest: str) -> None:
    event = read({}, f"aw.event.default{rest}")
    assert event.workspace == "default"
    assert "is not a valid event" in event.problem
    assert event.problem.isprintable()


@pytest.mark.parametrize(
    ("value", "priority"),
    [("P0", 0), ("p1", 1), ("P2", 2), (0, 0), (1, 1), (2, 2), ("0", 0), (None, 1)],
)
def test_plain_json_may_carry_a_priority(value: object, priority: int) -> None:
    event = read({"priority": value})
    assert (event.priority, event.note) == (priority, "")


@pytest.mark.parametrize("value", ["P3", "urgent", 3, -1, True, [], {}, 1.5, "x" * 500])
def test_unknown_priority_is_p1_with_a_note(value: object) -> None:
    event = read({"priority": value})
    assert event.priority == 1
    assert "treated as P1" in event.text
    assert len(event.text) < TEXT_CHARS_MAX + 200


CLOUD: dict[str, Any] = {
    "specversion": "1.0",
    "id": "e1",
    "source": "/fleet",
    "type": "instance.dead",
    "priority": "P0",
    "data": {"id": "w-1"},
}


def test_structured_cloudevent_gives_data_and_priority() -> None:
    event = read(CLOUD)
    assert (event.data, event.priority) == ({"id": "w-1"}, 0)


def test_binary_cloudevent_gives_data_and_priority() -> None:
    headers = {
        "ce-specversion": "1.0",
        "Ce-Id": "e%201",
        "ce-source": "/fleet",
        "ce-type": "instance.dead",
        "ce-priority": "P2",
    }
    event = read_event(Stored(SUBJECT, 1, 1, b'{"id":"w-1"}', headers))
    assert event is not None
    assert (event.data, event.priority) == ({"id": "w-1"}, 2)
    assert event.attributes["id"] == "e 1"


def test_data_and_attributes_of_a_cloudevent_are_kept_and_shown() -> None:
    extra = {"subject": "disk/3", "traceparent": "00-4bf9-00f0-01", "time": "2026-03-17T18:56:43Z"}
    content = {**CLOUD, **extra, "type": "com.example.disk.full", "data_base64": "aGVsbG8="}
    del content["data"]
    event = read(content)
    assert event.data == "hello"
    assert event.attributes == {name: content[name] for name in content if name != "data_base64"}
    shown = {"source": "/fleet", "type": "com.example.disk.full", "subject": "disk/3"}
    text, _, attributes = event.text.partition(" (CloudEvent attributes: ")
    assert text == "hello"
    assert json.loads(attributes.removesuffix(")")) == {**shown, **extra}


def test_attributes_that_the_name_shows_are_not_repeated() -> None:
    for source in ("fleet", "/default/fleet"):
        assert read({**CLOUD, "source": source}).text == '{"id":"w-1"}'


def test_bytes_are_shown_in_short_and_kept_in_full() -> None:
    data = bytes(range(128, 256))
    content = {**CLOUD, "datacontenttype": "image/png", "data_base64": base64.b64encode(data).decode()}
    del content["data"]
    event = read(content)
    assert event.data == data
    assert event.text.startswith("128 bytes of image/png: 808182")
    assert len(event.text) < 200


def test_shown_attributes_are_bounded() -> None:
    event = read({**CLOUD, **{f"x{n}": "y" * 500 for n in range(20)}})
    assert len(event.text) < TEXT_CHARS_MAX + ATTRIBUTES_CHARS_MAX + 100
    assert len(event.attributes) > 20


@pytest.mark.parametrize(
    ("headers", "payload", "reason"),
    [
        ({"Content-Type": "application/cloudevents+json"}, b"{", "not a JSON object"),
        ({"Content-Type": "application/cloudevents+json"}, b"{}", "specversion is missing"),
        ({"content-type": "application/cloudevents-batch+json"}, b"[]", "a batch on NATS"),
        ({"content-type": "application/cloudevents+avro"}, b"Obj", "is not supported"),
        ({"ce-specversion": "1.0"}, b"{}", "id is missing"),
    ],
)
def test_declared_cloudevent_that_is_invalid_is_malformed(
    headers: dict[str, str], payload: bytes, reason: str
) -> None:
    event = read_event(Stored(SUBJECT, 1, 1, payload, headers))
    assert event is not None
    assert re.search(reason, event.problem)


def test_json_that_resembles_a_cloudevent_is_shown_with_a_note() -> None:
    event = read({"specversion": "1.0", "id": "e1", "priority": "P0"})
    assert (event.priority, event.data["id"], event.attributes) == (0, "e1", {})
    assert event.text.endswith("(not a valid CloudEvent: the attribute source is missing)")
    again = read({"specversion": "1.0", "id": "e1", "priority": "P0"}, sequence=8)
    assert (again.input_id, again.body_sha256) == (event.input_id, event.body_sha256)


def test_media_type_of_nats_may_be_in_either_header() -> None:
    headers = {f"ce-{name}": CLOUD[name] for name in ("specversion", "id", "source", "type")}
    for declared in ({"ce-datacontenttype": "text/plain"}, {"Content-Type": "text/plain"}):
        event = read_event(Stored(SUBJECT, 1, 1, b'{"a": 1}', headers | declared))
        assert event is not None
        assert (event.data, event.attributes["datacontenttype"]) == ('{"a": 1}', "text/plain")


def test_same_cloudevent_is_the_same_input() -> None:
    binary = read(
        {"id": "w-1"},
        sequence=9,
        ce_specversion="1.0",
        ce_id="e1",
        ce_source="/fleet",
        ce_type="instance.dead",
    )
    again = read(CLOUD, sequence=8, Nats_Msg_Id="m2")
    assert read(CLOUD, sequence=7, Nats_Msg_Id="m1").input_id == again.input_id == binary.input_id


def test_cloudevents_of_two_sources_may_share_an_id() -> None:
    subjects = [f"aw.event.{name}.instance.dead" for name in ("default.fleet", "default.other", "b.fleet")]
    events = [read(CLOUD, subject) for subject in subjects]
    ids = {each.input_id for each in (*events, read({**CLOUD, "source": "/other"}))}
    assert len(ids) == 4
    assert {each.event_id for each in events} == {"e1"}


def test_type_is_not_part_of_an_events_identity() -> None:
    other = read({**CLOUD, "type": "instance.hung"}, "aw.event.default.fleet.instance.hung")
    assert other.input_id == read(CLOUD).input_id
    assert other.body_sha256 != read(CLOUD).body_sha256


def test_digest_is_of_the_content_not_of_the_bytes() -> None:
    again = {name: CLOUD[name] for name in sorted(CLOUD)} | {"time": "2026-12-01T00:00:00Z"}
    assert read(again).body_sha256 == read(CLOUD).body_sha256
    for change in ({"data": {"id": "w-2"}}, {"priority": "P1"}):
        assert read({**CLOUD, **change}).body_sha256 != read(CLOUD).body_sha256


def test_message_id_identifies_an_event_that_is_not_a_cloudevent() -> None:
    first, again = read({"a": 1}, sequence=7, Nats_Msg_Id="m1"), read({"a": 1}, sequence=8, Nats_Msg_Id="m1")
    other = read({"a": 1}, "aw.event.default.other.x", Nats_Msg_Id="m1")
    assert first.input_id == again.input_id != other.input_id


def test_message_without_an_id_is_its_own_input() -> None:
    assert read({"id": "same"}, sequence=7).input_id != read({"id": "same"}, sequence=8).input_id
    assert read({"id": "same"}, sequence=7).input_id == read({"id": "same"}, sequence=7).input_id


@pytest.mark.parametrize("payload", [b"", b"plain words", b"\xff\xfe", b"{", b"[" * 100_000, b"9" * 10_000])
def test_bytes_that_are_not_json_are_text(payload: bytes) -> None:
    assert isinstance(read(payload).data, str)


def test_long_text_is_clipped_but_complete_in_the_data() -> None:
    event = read({"log": "x" * 5_000})
    assert len(event.text) == TEXT_CHARS_MAX
    assert event.data == {"log": "x" * 5_000}


@given(
    st.binary(max_size=300),
    st.dictionaries(
        st.sampled_from(["ce-id", "ce-specversion", "ce-type", "ce-source", "Nats-Msg-Id"]), st.text()
    ),
)
def test_any_bytes_and_headers_give_a_recordable_event(payload: bytes, headers: dict[str, str]) -> None:
    event = read_event(Stored(SUBJECT, 1, 1, payload, headers))
    assert event is not None
    encode(Record("input", 1, "w", {"data": event.data, "text": event.text}))


@pytest.mark.parametrize(
    "payload", [b'{"a": "\\ud800"}', b'{"a": NaN, "b": 1e999}', b'{"a": 123456789012345678901234567890}']
)
def test_values_that_only_json_can_express_are_recorded(payload: bytes) -> None:
    event = read(payload)
    data, _ = encode(Record("input", 1, "w", {"data": event.data}))
    assert decode(data).body["data"] == event.data
