"""Parses an event: a CloudEvent (structured JSON, or binary with ``ce-`` headers), plain JSON, or any bytes.

The identity of an event is (workspace, source, id), from its own content (INV-109). Nothing else makes two messages one
event: neither the server's dedupe window, which is one for all publishers, nor equal data. The functions are pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from anchorwatch.bus.port import MESSAGE_ID_HEADER, Stored
from anchorwatch.codec import canonical_json, sha256_hex
from anchorwatch.codec.plain import plain
from anchorwatch.core.errors import BadInput
from anchorwatch.core.names import check_name
from anchorwatch.core.session.state import Priority
from anchorwatch.journal.inputs import input_id

TEXT_CHARS_MAX = 2_000
_PRIORITIES: Mapping[object, Priority] = {"P0": 0, "P1": 1, "P2": 2, "0": 0, "1": 1, "2": 2, 0: 0, 1: 1, 2: 2}
_CE = "ce-"


@dataclass(frozen=True, slots=True)
class Event:
    """A parsed event.

    ``name`` is ``<source>.<type…>``, which subscriptions match. ``event_id`` is its own id (empty: none). ``input_id`` derives
    from its identity, so that an event sent again is the same input. ``body_sha256`` distinguishes that from another event
    with the same id.
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

    @property
    def name(self) -> str:
        return f"{self.source}.{self.type}" if self.type else self.source

    @property
    def text(self) -> str:
        """The event's data for the model, clipped to `TEXT_CHARS_MAX`."""
        whole = self.data if isinstance(self.data, str) else _compact(self.data)
        clipped = whole if len(whole) <= TEXT_CHARS_MAX else f"{whole[: TEXT_CHARS_MAX - 1]}…"
        return f"{clipped} ({self.note})" if self.note else clipped


def read_event(stored: Stored) -> Event | None:
    """The event; None if the subject has no valid workspace or no source."""
    tokens = stored.subject.split(".")[2:]
    try:
        workspace, source = check_name(tokens[0], "workspace name"), tokens[1]
    except (IndexError, BadInput):
        return None
    headers = {key.lower(): value for key, value in stored.headers.items()}
    data, attributes = _parse(stored.payload, headers)
    priority, note = _priority(attributes.get("priority"))
    event_id, of_event = attributes.get("id"), attributes.get("source")
    if not isinstance(event_id, str):
        event_id = ""
    type_ = ".".join(tokens[2:])
    return Event(
        workspace=workspace,
        source=source,
        type=type_,
        event_id=event_id,
        input_id=(
            event_input_id(workspace, source, str(of_event or ""), event_id)
            if event_id
            else _message_input_id(stored)
        ),
        priority=priority,
        data=data,
        note=note,
        # Not the bytes, and not the time: who sends an event again may write both differently.
        body_sha256=sha256_hex(canonical_json([type_, priority, note, data])),
    )


def event_input_id(workspace: str, source: str, of_event: str, event_id: str) -> str:
    """The input id of a CloudEvent. Its source is the one in its subject and, in it, its own attribute ``source``.

    The server can limit a publisher to subjects, but not what it writes into an attribute.
    """
    return input_id("ev", "cloudevent", workspace, source, of_event, event_id)


def _parse(payload: bytes, headers: Mapping[str, str]) -> tuple[Any, Mapping[str, Any]]:
    """The data and the attributes: of a CloudEvent, or the priority in plain JSON."""
    content = _content(payload)
    if f"{_CE}specversion" in headers:
        attributes = {
            key[len(_CE) :]: unquote(value) for key, value in headers.items() if key.startswith(_CE)
        }
        return content, attributes
    if not isinstance(content, dict):
        return content, {}
    if isinstance(content.get("specversion"), str):
        data = content.get("data", content.get("data_base64"))
        return data, {key: value for key, value in content.items() if key not in ("data", "data_base64")}
    return content, {"priority": content.get("priority")}


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


def _compact(data: Any) -> str:  # noqa: ANN401 - JSON is of any type
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False)
