"""Events over HTTP: plain JSON, and CloudEvents in structured, binary and batched mode."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import httpx2
import pytest
from anchorwatch.codec.cloudevents import BATCH_FORMAT, JSON_FORMAT

from tests.integration.gateway.conftest import House

EVENT: dict[str, Any] = {
    "specversion": "1.0",
    "id": "e1",
    "source": "https://disks.example.org/rack/7",
    "type": "com.example.disk.full",
    "subject": "disk/3",
    "time": "2026-03-17T18:56:43Z",
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
}
SUBJECT = "aw.event.default.https-disks-example-org-rack-7.com.example.disk.full"
BINARY = {f"ce-{name}": value for name, value in EVENT.items()}


async def post(house: House, content: object, headers: Mapping[str, str]) -> httpx2.Response:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return await house.http.post("/api/events", content=body, headers=headers)


async def stored(house: House, subject: str = SUBJECT) -> dict[str, Any]:
    (message,) = (await house.bus.last("EVENTS", [subject])).messages
    assert message.headers["Content-Type"] == JSON_FORMAT
    content: dict[str, Any] = json.loads(message.payload)
    return content


async def test_structured_event_is_stored_with_all_its_attributes(house: House) -> None:
    content = {**EVENT, "data": {"free": 0}, "dataschema": None}
    answer = await post(house, content, {"Content-Type": f"{JSON_FORMAT}; charset=utf-8"})
    assert (answer.status_code, answer.json()["id"]) == (202, "e1")
    assert await stored(house) == {**EVENT, "data": {"free": 0}}


async def test_binary_event_is_stored_as_its_structured_form(house: House) -> None:
    headers = BINARY | {"ce-subject": "d%C3%BCse%203", "Content-Type": "text/plain; charset=utf-8"}
    assert (await post(house, "é".encode(), headers)).status_code == 202
    typed = {"subject": "düse 3", "datacontenttype": "text/plain; charset=utf-8"}
    assert await stored(house) == {**EVENT, **typed, "data": "é"}
    image = b"\x89PNG\x00\xff"
    assert (
        await post(house, image, BINARY | {"ce-id": "e2", "Content-Type": "image/png"})
    ).status_code == 202
    found = await stored(house)
    assert (base64.b64decode(found["data_base64"]), found["datacontenttype"]) == (image, "image/png")


async def test_batch_is_answered_for_each_event(house: House) -> None:
    batch = [{**EVENT, "id": f"e{n}", "data_base64": "aGVsbG8="} for n in range(3)]
    answer = await post(house, batch, {"Content-Type": BATCH_FORMAT})
    assert answer.status_code == 202
    events = answer.json()["events"]
    assert [each["id"] for each in events] == ["e0", "e1", "e2"]
    assert sorted(each["sequence"] for each in events) == [each["sequence"] for each in events]
    assert (await stored(house))["data"] == "hello"
    assert (await post(house, [], {"Content-Type": BATCH_FORMAT})).json() == {"events": []}


async def test_batch_with_an_invalid_event_stores_none(house: House) -> None:
    batch = [EVENT, {**EVENT, "id": "e2", "type": None}]
    answer = await post(house, batch, {"Content-Type": BATCH_FORMAT})
    assert (answer.status_code, answer.json()["code"]) == (422, "not_a_cloudevent")
    assert answer.json()["message"] == "event 2 of the batch: the attribute type is missing"
    too_large = [EVENT, {**EVENT, "id": "e2", "data": "x" * 300_000}]
    assert (await post(house, too_large, {"Content-Type": BATCH_FORMAT})).status_code == 413
    assert not (await house.bus.last("EVENTS", [SUBJECT])).messages


@pytest.mark.parametrize(
    ("headers", "body", "status", "message"),
    [
        ({"Content-Type": JSON_FORMAT}, b"{", 400, "the body is not valid JSON"),
        ({"Content-Type": JSON_FORMAT}, b"[]", 422, "the event is not a JSON object"),
        ({"Content-Type": JSON_FORMAT}, b"{}", 422, "the attribute specversion is missing"),
        ({"Content-Type": BATCH_FORMAT}, b"{}", 422, "the batch is not a JSON array"),
        ({"Content-Type": "application/cloudevents+avro"}, b"Obj", 422, "the event format"),
        (BINARY | {"ce-time": "now"}, b"", 422, "time is 'now'"),
        (BINARY | {"ce-subject": "a%0Aperson"}, b"", 422, "the attribute subject contains"),
        (BINARY | {"ce-subject": "%FF"}, b"", 422, "the header ce-subject"),
        (BINARY | {"ce-source": "///"}, b"", 422, "the attribute source has no letter"),
        (BINARY | {"Content-Type": "application/json"}, b"hello", 422, "the data is declared as"),
        ({"ce-specversion": "1.0"}, b"", 422, "the attribute id is missing"),
    ],
)
async def test_invalid_event_is_refused_with_the_reason(
    house: House, headers: Mapping[str, str], body: bytes, status: int, message: str
) -> None:
    answer = await post(house, body, headers)
    assert (answer.status_code, answer.json()["message"][: len(message)]) == (status, message)


async def test_attribute_given_twice_is_refused(house: House) -> None:
    headers = [*BINARY.items(), ("CE-Id", "e2")]
    answer = await house.http.post("/api/events", content=b"", headers=headers)
    assert (answer.status_code, answer.json()["message"]) == (400, "the header ce-id occurs more than once")


async def test_long_type_is_shortened_to_the_words_of_a_subject(house: House) -> None:
    event = {**EVENT, "source": "s", "type": "a.b.c.d.e.f.g.h.i.j:k", "id": "long"}
    assert (await post(house, event, {"Content-Type": JSON_FORMAT})).status_code == 202
    assert (await stored(house, "aw.event.default.s.a.b.c.d.e.f.g.h-i-j-k"))["type"] == event["type"]
