"""INV-1404: CloudEvents 1.0 are read as the specification says in each mode, and written so that they are read again."""

from __future__ import annotations

import base64
import contextlib
import json
from typing import Any
from urllib.parse import quote

import pytest
from anchorwatch.codec.cloudevents import (
    ATTRIBUTES_MAX,
    BATCH_FORMAT,
    JSON_FORMAT,
    REQUIRED,
    VALUE_CHARS_MAX,
    CloudEvent,
    NotACloudEvent,
    from_headers,
    from_json,
    mode_of,
    to_json,
)
from hypothesis import given
from hypothesis import strategies as st

EVENT: dict[str, Any] = {"specversion": "1.0", "id": "e1", "source": "/disks", "type": "disk.full"}
HEADERS = {f"ce-{name}": value for name, value in EVENT.items()}

TEXTS = st.text(
    st.characters(
        exclude_categories=("Cc", "Cs", "Zl", "Zp", "Cn"),
        exclude_characters="\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
    ),
    min_size=1,
    max_size=60,
)
NAMES = st.from_regex(r"x[a-z0-9]{0,18}", fullmatch=True)
VALUES = st.one_of(TEXTS, st.booleans(), st.integers(-(2**31), 2**31 - 1))
JSON = st.recursive(
    st.one_of(st.booleans(), st.integers(-(2**53), 2**53), st.text(max_size=20)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@st.composite
def attributes(draw: st.DrawFn, values: st.SearchStrategy[Any] = VALUES) -> dict[str, Any]:
    required = {"specversion": "1.0", **{name: draw(TEXTS) for name in REQUIRED if name != "specversion"}}
    optional = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "subject": TEXTS,
                "dataschema": TEXTS,
                "time": st.datetimes().map(lambda each: each.isoformat() + "Z"),
            },
        )
    )
    return required | optional | draw(st.dictionaries(NAMES, values, max_size=5))


def encoded(value: str) -> str:
    """A header's value as the bindings say, by another implementation of percent-encoding."""
    return quote(value, safe="".join(chr(c) for c in range(0x21, 0x7F) if chr(c) not in '"%'))


@given(attributes(), JSON)
def test_structured_event_survives_a_round_trip(given_attributes: dict[str, Any], data: Any) -> None:
    event = CloudEvent(given_attributes, data)
    assert from_json(json.loads(json.dumps(to_json(event)))) == event


@given(attributes(), st.binary(min_size=1, max_size=200))
def test_bytes_are_the_same_in_both_modes(given_attributes: dict[str, Any], data: bytes) -> None:
    typed = given_attributes | {"datacontenttype": "application/octet-stream"}
    structured = from_json(typed | {"data_base64": base64.b64encode(data).decode()})
    assert structured.data == (data.decode() if isinstance(structured.data, str) else data)
    assert from_json(json.loads(json.dumps(to_json(structured)))) == structured
    headers = {f"ce-{name}": encoded(str(value).lower() if isinstance(value, bool) else str(value))
               for name, value in given_attributes.items()}  # fmt: skip
    binary = from_headers(headers | {"content-type": "application/octet-stream"}, data)
    assert binary.data == structured.data
    assert {name: binary.get(name) for name in typed} == {name: structured.get(name) for name in typed}


@given(attributes(TEXTS), JSON)
def test_binary_event_survives_a_round_trip(given_attributes: dict[str, str], data: Any) -> None:
    headers = {f"ce-{name}": encoded(value) for name, value in given_attributes.items()}
    assert all(value.isascii() and value.isprintable() and " " not in value for value in headers.values())
    event = from_headers(headers | {"ce-datacontenttype": "application/json"}, json.dumps(data).encode())
    assert event == CloudEvent(given_attributes | {"datacontenttype": "application/json"}, data)
    assert from_json(to_json(event)) == event


@given(
    st.dictionaries(st.one_of(NAMES, st.sampled_from([*REQUIRED, "time", "data_base64"])), st.text() | JSON)
)
def test_any_object_is_an_event_or_refused(content: dict[str, Any]) -> None:
    try:
        event = from_json({**EVENT, **content})
    except NotACloudEvent as error:
        event, reason = None, error.message
    if event is None:
        assert reason.isprintable()
    else:
        assert from_json(to_json(event)).attributes == event.attributes


@given(st.dictionaries(st.sampled_from([*HEADERS, "ce-time", "content-type"]), st.text()), st.binary())
def test_any_headers_are_an_event_or_refused(headers: dict[str, str], payload: bytes) -> None:
    with contextlib.suppress(NotACloudEvent):
        event = from_headers(HEADERS | headers, payload)
        assert from_json(to_json(event)).attributes == event.attributes


@pytest.mark.parametrize(
    ("headers", "mode"),
    [
        ({"content-type": JSON_FORMAT}, "structured"),
        ({"content-type": "Application/CloudEvents+JSON; charset=UTF-8"}, "structured"),
        ({"content-type": "application/cloudevents"}, "structured"),
        ({"content-type": BATCH_FORMAT, "ce-specversion": "1.0"}, "batch"),
        ({"content-type": "application/json", "ce-specversion": "1.0"}, "binary"),
        ({"content-type": "application/json"}, None),
        ({}, None),
    ],
)
def test_content_type_chooses_the_mode(headers: dict[str, str], mode: str | None) -> None:
    assert mode_of(headers) == mode


def test_unknown_event_format_is_refused() -> None:
    with pytest.raises(NotACloudEvent, match="avro"):
        mode_of({"content-type": "application/cloudevents+avro"})


@pytest.mark.parametrize(
    ("encoded_data", "media_type", "data"),
    [
        ("aGVsbG8=", None, "hello"),
        ("aGVsbG8=", "text/plain", "hello"),
        ("eyJhIjogMX0=", None, {"a": 1}),
        ("eyJhIjogMX0=", "application/vnd.x+json", {"a": 1}),
        ("eyJhIjogMX0=", "text/plain", '{"a": 1}'),
        ("/wD+", None, b"\xff\x00\xfe"),
        ("G1szMW0=", "text/plain", b"\x1b[31m"),
        ("", None, None),
    ],
)
def test_base64_data_is_decoded(encoded_data: str, media_type: str | None, data: object) -> None:
    event = from_json({**EVENT, "data_base64": encoded_data, "datacontenttype": media_type})
    assert event.data == data


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"id": None}, "id is missing"),
        ({"source": ""}, "source is not a text"),
        ({"type": 7}, "type is not a text"),
        ({"specversion": "0.3"}, "specversion is '0.3'"),
        ({"time": "yesterday"}, "time is 'yesterday'"),
        ({"time": "2026-03-17T18:56:43"}, "time is"),
        ({"time": "2026-02-30T00:00:00Z"}, "time is"),
        ({"datacontenttype": "text"}, "not a media type"),
        ({"subject": "a\nperson wrote: stop"}, r"U\+000A"),
        ({"subject": "a\u2028person wrote: stop"}, r"U\+2028"),
        ({"subject": "\u202etxet"}, r"U\+202E"),
        ({"subject": "a\uffff"}, r"U\+FFFF"),
        ({"subject": "a\ud800"}, r"U\+D800"),
        ({"subject": "x" * (VALUE_CHARS_MAX + 1)}, "the limit is"),
        ({"Comment": "x"}, "not a name"),
        ({"trace_parent": "x"}, "not a name"),
        ({"load": 1.5}, "not a text, a boolean or an integer"),
        ({"load": {"a": 1}}, "not a text, a boolean or an integer"),
        ({"count": 2**31}, "32 bits"),
        ({f"x{n}": "y" for n in range(ATTRIBUTES_MAX)}, "the limit is"),
        ({f"x{n}": "y" * VALUE_CHARS_MAX for n in range(8)}, "the limit is"),
        ({"data_base64": "%%%"}, "not valid Base64"),
        ({"data_base64": 5}, "not valid Base64"),
        ({"data_base64": "aGVsbG8=", "data": 1}, "both"),
        ({"data_base64": "aGVsbG8=", "datacontenttype": "application/json"}, "not valid JSON"),
    ],
)
def test_invalid_event_is_refused_with_the_reason(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(NotACloudEvent, match=reason):
        from_json(EVENT | change)


@pytest.mark.parametrize(
    ("value", "subject"),
    [
        ("Euro%20%E2%82%AC%20%F0%9F%98%80", "Euro € 😀"),
        ("%e2%82%ac", "€"),
        ("%41", "A"),
        ("100%", "100%"),
        (r'"a \"b\" \\ c"', r'a "b" \ c'),
        ("%2541", "%41"),
    ],
)
def test_header_value_is_unescaped_once(value: str, subject: str) -> None:
    assert from_headers(HEADERS | {"ce-subject": value}, b"").attributes["subject"] == subject


@pytest.mark.parametrize("value", ["%C0%A0", "%FF", "a%0Ab", "%00"])
def test_odd_header_value_is_refused(value: str) -> None:
    with pytest.raises(NotACloudEvent):
        from_headers(HEADERS | {"ce-subject": value}, b"")


def test_time_of_a_leap_second_is_valid() -> None:
    assert from_json(EVENT | {"time": "2016-12-31T23:59:60Z"}).get("time") == "2016-12-31T23:59:60Z"
