"""Parses an event: a CloudEvent (structured JSON, or binary with ``ce-`` headers), plain JSON, or any bytes.

The identity of an event is (workspace, source, id), from its own content (INV-109). Nothing else makes two messages one
event: neither the server's dedupe window, which is one for all publishers, nor equal data. The functions are pure, and raise
nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anchorwatch.bus.port import MESSAGE_ID_HEADER, Stored
from anchorwatch.codec import canonical_json, cloudevents, sha256_hex
from anchorwatch.codec.cloudevents import NotACloudEvent
from anchorwatch.codec.plain import plain
from anchorwatch.core.errors import BadInput
from anchorwatch.core.names import check_name, check_token
from anchorwatch.core.session.state import Priority
from anchorwatch.journal.inputs import input_id

TEXT_CHARS_MAX = 2_000
ATTRIBUTES_CHARS_MAX = 600
"""The attributes of a CloudEvent in the text for the model; the record has them all."""
BYTES_SHOWN = 32
_PRIORITIES: Mapping[object, Priority] = {"P0": 0, "P1": 1, "P2": 2, "0": 0, "1": 1, "2": 2, 0: 0, 1: 1, 2: 2}


@dataclass(frozen=True, slots=True)
class Event:
    """A parsed event.

    ``name`` is ``<source>.<type…>``, which subscriptions match. ``event_id`` is its own id (empty: none). ``input_id`` derives
    from its identity, so that an event sent again is the same input. ``body_sha256`` distinguishes that from another event
    with the same id. ``data`` is a JSON value, a text, or bytes. ``attributes``: those of a CloudEvent. ``problem``: why it is
    malformed; empty: it is not.
    """

    workspace: str
    source: str
    type: str
    event_id: str
    input_id: str
    priority: Priority
    data: Any
    note: str
    body_sha256: str
    attributes: Mapping[str, cloudevents.Value] = field(default_factory=dict)
    problem: str = ""

    @property
    def name(self) -> str:
        return f"{self.source}.{self.type}" if self.type else self.source

    @property
    def text(self) -> str:
        """The event's data for the model, clipped to `TEXT_CHARS_MAX`, and the attributes that the name does not show."""
        parts = [_clip(self._data_text(), TEXT_CHARS_MAX)]
        if shown := self._shown_attributes():
            parts.append(f"(CloudEvent attributes: {_clip(_compact(shown), ATTRIBUTES_CHARS_MAX)})")
        if self.note:
            parts.append(f"({self.note})")
        return " ".join(parts)

    @property
    def media_type(self) -> str:
        return str(self.attributes.get("datacontenttype") or "application/octet-stream")

    def _data_text(self) -> str:
        if isinstance(self.data, bytes):
            more = "…" if len(self.data) > BYTES_SHOWN else ""
            return f"{len(self.data)} bytes of {self.media_type}: {self.data[:BYTES_SHOWN].hex()}{more}"
        if self.data is None and self.attributes:
            return "no data"
        return self.data if isinstance(self.data, str) else _compact(self.data)

    def _shown_attributes(self) -> Mapping[str, cloudevents.Value]:
        """All attributes but those that identify the event, and those that the event's name or data shows."""
        usual = {"type": self.type, "source": f"/{self.workspace}/{self.source}"}
        return {
            name: value
            for name, value in self.attributes.items()
            if name not in ("specversion", "id", "priority", "datacontenttype")
            and value != usual.get(name)
            and not (name == "source" and value == self.source)
        }


def read_event(stored: Stored) -> Event | None:
    """The event; None if the subject has no valid workspace."""
    tokens = stored.subject.split(".")[2:]
    try:
        workspace = check_name(tokens[0] if tokens else "", "workspace name")
    except BadInput:
        return None
    source, type_tokens = tokens[1] if len(tokens) > 1 else "", tokens[2:]
    headers = {key.lower(): value for key, value in stored.headers.items()}
    try:
        parsed, problem = _parse(stored.payload, headers), _problem_of(source, type_tokens)
    except NotACloudEvent as error:
        parsed, problem = _Parsed(None), f"not a valid CloudEvent: {error}"
    priority, note = _priority(parsed.said.get("priority"))
    event_id, of_event = (_text(parsed.said.get(name)) for name in ("id", "source"))
    type_ = ".".join(type_tokens)
    return Event(
        workspace=workspace,
        source=source,
        type=type_,
        event_id=event_id,
        input_id=(
            event_input_id(workspace, source, of_event, event_id) if event_id else _message_input_id(stored)
        ),
        priority=priority,
        data=parsed.data,
        note=parsed.note or note,
        body_sha256=_body_sha256(type_, priority, note, parsed),
        attributes=parsed.attributes,
        problem=problem,
    )


def _problem_of(source: str, type_tokens: Sequence[str]) -> str:
    """Why the names in the subject are not valid (INV-111).

    The server lets a publisher put any bytes but white space into a subject, and people and models read these names.
    """
    try:
        check_token(source, "event source")
        for token in type_tokens:
            check_token(token, "event type")
    except BadInput as error:
        return f"{error.message}; {error.hint}"
    return ""


def event_input_id(workspace: str, source: str, of_event: str, event_id: str) -> str:
    """The input id of a CloudEvent. Its source is the one in its subject and, in it, its own attribute ``source``.

    The server can limit a publisher to subjects, but not what it writes into an attribute.
    """
    return input_id("ev", "cloudevent", workspace, source, of_event, event_id)


def _body_sha256(type_: str, priority: Priority, note: str, parsed: _Parsed) -> str:
    """Not of the bytes, the time or the trace: who sends an event again may write them differently.

    An event with a ``fingerprint`` is an alert: its sender repeats it with newer values while it lasts.
    """
    said, data = parsed.attributes, parsed.data
    if "fingerprint" in said:
        return sha256_hex(canonical_json([type_, said["fingerprint"]]))
    body = data.hex() if isinstance(data, bytes) else data
    return sha256_hex(canonical_json([type_, priority, note, body, said.get("type"), said.get("subject")]))


@dataclass(frozen=True, slots=True)
class _Parsed:
    """The content of a message. ``attributes``: empty if it is not a CloudEvent. ``said``: where identity and priority are."""

    data: Any
    attributes: Mapping[str, cloudevents.Value] = field(default_factory=dict)
    said: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""


def _parse(payload: bytes, headers: Mapping[str, str]) -> _Parsed:
    """Raises NotACloudEvent: the headers declare a CloudEvent, and it is not a valid one."""
    mode = cloudevents.mode_of(headers)
    if mode == "batch":
        raise NotACloudEvent("a batch on NATS", hint="the NATS binding has no batches: publish each event")
    if mode == "binary":
        return _of(cloudevents.from_headers(headers, payload))
    content = _content(payload)
    if mode == "structured":
        return _of(cloudevents.from_json(content))
    if not isinstance(content, dict):
        return _Parsed(content)
    if "specversion" not in content:
        return _Parsed(content, said={"priority": content.get("priority")})
    # Release 1.0.2 of the binding knows the structured mode alone, without a header.
    try:
        return _of(cloudevents.from_json(content))
    except NotACloudEvent as error:
        return _Parsed(content, said=content, note=f"not a valid CloudEvent: {error.message}")


def _of(event: cloudevents.CloudEvent) -> _Parsed:
    return _Parsed(event.data, event.attributes, event.attributes)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _content(payload: bytes) -> Any:  # noqa: ANN401 - JSON is of any type
    text = payload.decode("utf-8", "replace")
    try:
        return plain(json.loads(text))
    except (ValueError, RecursionError):
        return text


def refused_input_id(event: Event) -> str:
    """The input id of an event that is refused, since another event has its identity."""
    return input_id("ev", "refused", event.input_id, event.body_sha256)


def _message_input_id(stored: Stored) -> str:
    message_id = stored.headers.get(MESSAGE_ID_HEADER)
    if message_id:
        # Its source is its subject: independent publishers may count from 1 on their own subjects.
        return input_id("ev", "message", stored.subject, message_id)
    # With the time: a recreated stream counts from 1 again.
    return input_id("ev", "sequence", str(stored.sequence), str(stored.time_ms))


def _priority(value: object) -> tuple[Priority, str]:
    if value is None:
        return 1, ""
    if isinstance(value, str | int) and not isinstance(value, bool):
        key = value.upper() if isinstance(value, str) else value
        if key in _PRIORITIES:
            return _PRIORITIES[key], ""
    return 1, f"unknown priority {str(value)[:40]!r}, treated as P1 (known: P0, P1, P2)"


def _clip(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"


def _compact(data: Any) -> str:  # noqa: ANN401 - JSON is of any type
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False)
