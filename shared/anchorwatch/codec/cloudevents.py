"""Reads and writes CloudEvents 1.0: structured and binary mode, as HTTP and NATS carry them.

Pure functions over headers and bytes. The sources, all in https://github.com/cloudevents/spec:

- attributes and their types: ``cloudevents/spec.md``, "Type System" and "Context Attributes";
- the JSON format, ``data_base64`` and batches: ``cloudevents/formats/json-format.md``, sections 2 to 4;
- modes and header values on HTTP: ``cloudevents/bindings/http-protocol-binding.md``, section 3;
- the same on NATS: ``cloudevents/bindings/nats-protocol-binding.md``, section 3 (binary mode since 1.0.3).

Both bindings choose the mode by the content type, and percent-encode header values in the same way. They differ in
one header: NATS has ``ce-datacontenttype``, HTTP has ``content-type``. Reading accepts either.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import unquote

from anchorwatch.codec.plain import plain
from anchorwatch.core.errors import BadInput
from anchorwatch.core.times import from_iso

CONTENT_TYPE: Final = "content-type"
PREFIX: Final = "ce-"
JSON_FORMAT: Final = "application/cloudevents+json"
BATCH_FORMAT: Final = "application/cloudevents-batch+json"
SPECVERSION: Final = "1.0"
REQUIRED: Final = ("specversion", "id", "source", "type")

VALUE_CHARS_MAX: Final = 2_048
"""The longest value of one attribute: beyond any identifier, and beyond the 512 characters of a ``tracestate``."""
ATTRIBUTES_MAX: Final = 64
ATTRIBUTES_CHARS_MAX: Final = 16 * 1024
"""Names and values of an event's attributes, together."""
_INTEGER_MIN, _INTEGER_MAX = -(2**31), 2**31 - 1

Mode = Literal["structured", "batch", "binary"]
Value = str | int | bool
_NAME = re.compile(r"[a-z0-9]{1,64}")
_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+( *;.*)?", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_LEAP_SECOND = re.compile(r":60(?=[.Zz+-])")
# Control characters and noncharacters are not allowed in a value. A line or paragraph separator or a change of the text's
# direction is, but can pretend to be another line of a prompt or of a terminal.
_LAST_OF_PLANES = "".join(chr(plane << 16 | low) for plane in range(17) for low in (0xFFFE, 0xFFFF))
_ODD = re.compile(
    f"[{_LAST_OF_PLANES}\x00-\x1f\x7f-\x9f\ufdd0-\ufdef\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_CONTROL_IN_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


class NotACloudEvent(BadInput):
    """It is not a valid CloudEvent."""

    code = "not_a_cloudevent"


@dataclass(frozen=True, slots=True)
class CloudEvent:
    """``attributes``: every context attribute by its name. ``data``: a JSON value or a text; bytes only where it is neither."""

    attributes: Mapping[str, Value]
    data: Any = None

    def get(self, name: str) -> str:
        """The attribute as text; empty where it is not set."""
        value = self.attributes.get(name, "")
        return _canonical(value)


def mode_of(headers: Mapping[str, str]) -> Mode | None:
    """The mode that the headers (names in lower case) declare; None: they declare no CloudEvent.

    Raises:
        NotACloudEvent: they declare an event format other than JSON.
    """
    media_type = _essence(headers.get(CONTENT_TYPE, ""))
    if media_type.startswith("application/cloudevents"):
        if media_type in (JSON_FORMAT, "application/cloudevents"):
            return "structured"
        if media_type in (BATCH_FORMAT, "application/cloudevents-batch"):
            return "batch"
        raise NotACloudEvent(
            f"the event format {media_type[:80]!r} is not supported",
            hint=f"send {JSON_FORMAT}, {BATCH_FORMAT}, or the attributes as {PREFIX} headers",
        )
    return "binary" if f"{PREFIX}specversion" in headers else None


# ---------------------------------------------------------------- reading


def from_json(value: object) -> CloudEvent:
    """The event in a JSON object of the JSON format. An attribute that is null counts as not set.

    Raises:
        NotACloudEvent: it is not one; the message names the attribute.
    """
    if not isinstance(value, dict):
        raise NotACloudEvent("the event is not a JSON object")
    attributes = {
        name: each for name, each in value.items() if name not in ("data", "data_base64") and each is not None
    }
    checked = _checked(attributes)
    encoded = value.get("data_base64")
    if encoded is None:
        return CloudEvent(checked, value.get("data"))
    if value.get("data") is not None:
        raise NotACloudEvent("the event has both data and data_base64", hint="send one of them")
    try:
        raw = base64.b64decode(encoded, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise NotACloudEvent("data_base64 is not valid Base64") from None
    return CloudEvent(checked, _data(raw, str(checked.get("datacontenttype", ""))))


def from_headers(headers: Mapping[str, str], payload: bytes) -> CloudEvent:
    """The event in binary mode; names of ``headers`` are in lower case.

    Raises:
        NotACloudEvent: it is not one; the message names the attribute.
    """
    attributes = {
        name.removeprefix(PREFIX): _unescaped(name, value)
        for name, value in headers.items()
        if name.startswith(PREFIX)
    }
    declared = headers.get(CONTENT_TYPE, "").strip()
    if declared:
        attributes.setdefault("datacontenttype", declared)
    checked = _checked(attributes)
    return CloudEvent(checked, _data(payload, str(checked.get("datacontenttype", ""))))


def _checked(attributes: Mapping[str, Any]) -> Mapping[str, Value]:
    for name in REQUIRED:
        if name not in attributes:
            raise NotACloudEvent(f"the attribute {name} is missing")
    if attributes["specversion"] != SPECVERSION:
        raise NotACloudEvent(
            f"specversion is {str(attributes['specversion'])[:40]!r}", hint=f"send version {SPECVERSION}"
        )
    for name, value in attributes.items():
        _check(name, value)
    for name in (*REQUIRED, "subject", "dataschema"):
        if not isinstance(attributes.get(name, "-"), str) or not attributes.get(name, "-"):
            raise NotACloudEvent(f"the attribute {name} is not a text, or is empty")
    _check_forms(attributes)
    size = sum(len(name) + len(_canonical(value)) for name, value in attributes.items())
    if len(attributes) > ATTRIBUTES_MAX or size > ATTRIBUTES_CHARS_MAX:
        raise NotACloudEvent(
            f"the event has {len(attributes)} attributes of {size} characters,"
            f" the limit is {ATTRIBUTES_MAX} of {ATTRIBUTES_CHARS_MAX}",
            hint="send long values in the data",
        )
    return attributes


def _check(name: str, value: object) -> None:
    if not _NAME.fullmatch(name):
        raise NotACloudEvent(
            f"{name[:80]!r} is not a name of an attribute", hint="use 1-64 lower-case letters and digits"
        )
    if isinstance(value, bool):
        return
    if isinstance(value, int):
        if not _INTEGER_MIN <= value <= _INTEGER_MAX:
            raise NotACloudEvent(f"the attribute {name} is not an integer of 32 bits")
        return
    if not isinstance(value, str):
        raise NotACloudEvent(f"the attribute {name} is not a text, a boolean or an integer")
    if len(value) > VALUE_CHARS_MAX:
        raise NotACloudEvent(
            f"the attribute {name} has {len(value)} characters, the limit is {VALUE_CHARS_MAX}",
            hint="send long values in the data",
        )
    if odd := _ODD.search(value):
        raise NotACloudEvent(f"the attribute {name} contains the character U+{ord(odd[0]):04X}")


def _check_forms(attributes: Mapping[str, Any]) -> None:
    time, media_type = attributes.get("time"), attributes.get("datacontenttype")
    if time is not None and not (isinstance(time, str) and _is_time(time)):
        raise NotACloudEvent(
            f"time is {str(time)[:80]!r}", hint="send RFC 3339, for example 2026-03-17T18:56:43Z"
        )
    if media_type is not None and not (isinstance(media_type, str) and _MEDIA_TYPE.fullmatch(media_type)):
        raise NotACloudEvent(f"datacontenttype is {str(media_type)[:80]!r}, not a media type")


def _is_time(text: str) -> bool:
    """Whether it is a time of RFC 3339. A leap second counts as the second before it."""
    if not _TIME.fullmatch(text):
        return False
    try:
        from_iso(_LEAP_SECOND.sub(":59", text.upper()))
    except BadInput:
        return False
    return True


def _unescaped(name: str, value: str) -> str:
    """A header's value: first without quotes and backslashes, then one round of percent-decoding (HTTP binding, 3.1.3.2)."""
    value = value.strip()
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = re.sub(r"\\(.)", r"\1", value[1:-1])
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        raise NotACloudEvent(f"the header {name[:80]} is not percent-encoded UTF-8") from None


def _data(raw: bytes, media_type: str) -> Any:  # noqa: ANN401 - JSON is of any type
    """The data as what its media type declares: a JSON value, else a text if it is one, else the bytes.

    Raises:
        NotACloudEvent: it is declared as JSON, and is not JSON.
    """
    if not raw:
        return None
    kind = _essence(media_type)
    if not kind or kind.endswith(("/json", "+json")):
        try:
            return plain(json.loads(raw))
        except (ValueError, RecursionError):
            if kind:
                raise NotACloudEvent(f"the data is declared as {kind} and is not valid JSON") from None
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return raw
    return raw if _CONTROL_IN_TEXT.search(text) else text


def _essence(media_type: str) -> str:
    """``text/plain`` of ``Text/Plain; charset=utf-8``."""
    return media_type.partition(";")[0].strip().lower()


# ---------------------------------------------------------------- writing


def to_json(event: CloudEvent) -> dict[str, Any]:
    """The event as a JSON object of the JSON format. Bytes become ``data_base64``."""
    content: dict[str, Any] = dict(event.attributes)
    if isinstance(event.data, bytes):
        content["data_base64"] = base64.b64encode(event.data).decode()
    elif event.data is not None:
        content["data"] = event.data
    return content


def _canonical(value: Value) -> str:
    """The string encoding of a value (spec.md, "Type System")."""
    return str(value).lower() if isinstance(value, bool) else str(value)
