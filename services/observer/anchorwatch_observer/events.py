"""Parses an event: a CloudEvent (structured JSON, or binary with ``ce-`` headers), plain JSON, or any bytes.

The functions are pure and never raise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import unquote

from anchorwatch.bus.port import MESSAGE_ID_HEADER, Stored
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

    ``name`` is ``<source>.<type…>``, which subscriptions match. ``input_id`` derives from the event's own id, so a redelivery is
    the same input. ``body_sha256`` distinguishes a repeated event from another event with the same id.
    """

    workspace: str
    source: str
    type: str
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
    return Event(
        workspace=workspace,
        source=source,
        type=".".join(tokens[2:]),
        input_id=_identity(stored, attributes),
        priority=priority,
        data=data,
        note=note,
        body_sha256=sha256(stored.subject.encode() + b"\0" + stored.payload).hexdigest(),
    )


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


def _identity(stored: Stored, attributes: Mapping[str, Any]) -> str:
    event_id, source = attributes.get("id"), attributes.get("source", "")
    if isinstance(event_id, str) and event_id:
        return input_id("ev", "cloudevent", str(source), event_id)
    message_id = stored.headers.get(MESSAGE_ID_HEADER)
    if message_id:
        # Independent publishers may use the same message ids on their own subjects.
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
