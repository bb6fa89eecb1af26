"""Events over HTTP: plain JSON, or CloudEvents in each of their modes. Each is answered after the server stored it."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from anchorwatch.bus.port import Message, Stored
from anchorwatch.codec import cloudevents, decode
from anchorwatch.codec.cloudevents import CloudEvent, NotACloudEvent
from anchorwatch.core.errors import AnchorWatchError, Conflict, Damaged, TooLarge, Unavailable
from anchorwatch.core.times import iso
from anchorwatch.edges import Edge, reached
from anchorwatch.service.event_publisher import id_conflict
from anchorwatch.service.events import read_event
from anchorwatch.topology.streams import RECORD_BYTES_MAX
from anchorwatch.topology.subjects import INPUT
from anchorwatch.topology.subjects import event as event_subject
from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError

from anchorwatch_gateway import kill_switches
from anchorwatch_gateway.errors import CONFLICT, Problem
from anchorwatch_gateway.guard import parse_json
from anchorwatch_gateway.inputs import HOLDING
from anchorwatch_gateway.kill_switches import KillSwitch
from anchorwatch_gateway.parts import Parts
from anchorwatch_gateway.requests import (
    EVENT_ID_PATTERN,
    EVENT_TYPE_PATTERN,
    TOKEN_PATTERN,
    Body,
    PartsDep,
    PriorityName,
    WorkspaceDep,
)

router = APIRouter(prefix="/api", tags=["sessions"])

EVENT_BYTES_MAX = RECORD_BYTES_MAX - 8 * 1024
"""Below the stream's limit: the record of an input holds the event, and headers are added."""
BATCH_MAX = 1_000
TYPE_WORDS_MAX = 8
WORD_CHARS_MAX = 64
_NOT_IN_A_WORD = re.compile(r"[^A-Za-z0-9_-]+")


class NewEvent(Body):
    """Something that happened outside."""

    source: str = Field(pattern=TOKEN_PATTERN)
    type: str = Field(
        pattern=EVENT_TYPE_PATTERN, description="words separated by dots, such as instance.dead"
    )
    data: Any = None
    priority: PriorityName = "P1"
    id: str | None = Field(
        None,
        pattern=EVENT_ID_PATTERN,
        description="the event's own id; with the same id it is the same event",
    )


class Published(BaseModel):
    """Proof that an event was stored."""

    id: str
    sequence: int = Field(description="sequence in the stream EVENTS")
    duplicate: bool = Field(description="true: the same event was stored a moment ago; this is its sequence")
    kill_switches: list[KillSwitch] | None = Field(description=HOLDING)


class NotPublished(BaseModel):
    """An event of a batch that was not stored, or not confirmed, and why."""

    id: str
    error: Problem


class PublishedBatch(BaseModel):
    """What happened to each event of a batch, in its order."""

    events: list[Published | NotPublished]


@dataclass(frozen=True, slots=True)
class Named:
    """An event and the words of its subject: ``aw.event.WORKSPACE.<source>.<type>``."""

    source: str
    type: str
    event: CloudEvent

    @property
    def id(self) -> str:
        return self.event.get("id")


_BODY = {
    "required": True,
    "description": "`content-type` chooses the form; with `ce-` headers the body is the event's data.",
    "content": {
        "application/json": {"schema": NewEvent.model_json_schema()},
        cloudevents.JSON_FORMAT: {"schema": {"type": "object", "required": list(cloudevents.REQUIRED)}},
        cloudevents.BATCH_FORMAT: {
            "schema": {"type": "array", "maxItems": BATCH_MAX, "items": {"type": "object"}}
        },
        "*/*": {"schema": {"type": "string", "format": "binary"}},
    },
}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    **CONFLICT,
    207: {"model": PublishedBatch, "description": "Some events of the batch were not stored; each says why"},
}


@router.post("/events", status_code=202, responses=_ANSWERS, openapi_extra={"requestBody": _BODY})
async def publish_event(
    request: Request, response: Response, parts: PartsDep, workspace: WorkspaceDep
) -> Published | PublishedBatch:
    """Publish an event, or a batch of CloudEvents. 202 follows the server's acknowledgement."""
    events, batch = _read(request.scope["headers"], await request.body(), parts)
    payloads = [_payload(each) for each in events]
    if not batch:
        return await _publish(parts, workspace, events[0], payloads[0])
    answers = await publish_all(parts, workspace, events)
    if any(isinstance(each, NotPublished) for each in answers):
        response.status_code = HTTPStatus.MULTI_STATUS
    return PublishedBatch(events=answers)


# ---------------------------------------------------------------- reading


def _read(headers: Sequence[tuple[bytes, bytes]], body: bytes, parts: Parts) -> tuple[Sequence[Named], bool]:
    """The events of a request, and whether it is a batch.

    Raises:
        BadInput, RequestValidationError: one of them is invalid. TooLarge.
    """
    # Not Latin-1, as the framework reads them: what is not ASCII in a header of an event is UTF-8, or refused.
    texts = {name.decode("latin-1"): value.decode("utf-8", "surrogateescape") for name, value in headers}
    match cloudevents.mode_of(texts):
        case "structured":
            return [named(cloudevents.from_json(parse_json(body)))], False
        case "binary":
            return [named(cloudevents.from_headers(texts, body))], False
        case "batch":
            return _read_batch(parse_json(body)), True
        case None:
            return [_of_plain(parse_json(body), parts)], False


def _read_batch(body: object) -> Sequence[Named]:
    if not isinstance(body, list):
        raise NotACloudEvent("the batch is not a JSON array")
    if len(body) > BATCH_MAX:
        raise TooLarge(
            f"the batch has {len(body)} events, the limit is {BATCH_MAX}", hint="send several batches"
        )
    events = []
    for number, each in enumerate(body, 1):
        try:
            events.append(named(cloudevents.from_json(each)))
        except NotACloudEvent as error:
            raise NotACloudEvent(
                f"event {number} of the batch: {error.message}", hint=error.hint or "none was stored"
            ) from None
    return events


def _of_plain(body: object, parts: Parts) -> Named:
    try:
        new = NewEvent.model_validate(body)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        raise RequestValidationError([{**each, "loc": ("body", *each["loc"])} for each in found]) from None
    attributes: Mapping[str, str] = {
        "specversion": cloudevents.SPECVERSION,
        "id": new.id or f"evt-{secrets.token_hex(12)}",
        "source": new.source,
        "type": new.type,
        "time": iso(parts.clock.now_ms()),
        "datacontenttype": "application/json",
        "priority": new.priority,
    }
    return Named(new.source, new.type, CloudEvent(attributes, new.data))


def named(event: CloudEvent, source: str = "") -> Named:
    """The event with the words of its subject, made of its source and type; ``source`` replaces the first.

    Raises:
        NotACloudEvent: they have no letter and no digit.
    """
    source = source or _word(event.get("source"))
    words = [word for part in event.get("type").split(".") if (word := _word(part))]
    first, rest = words[: TYPE_WORDS_MAX - 1], words[TYPE_WORDS_MAX - 1 :]
    type_ = ".".join([*first, *([_word("-".join(rest))] if rest else [])])
    for name, made in (("source", source), ("type", type_)):
        if not made:
            raise NotACloudEvent(f"the attribute {name} has no letter and no digit")
    return Named(source, type_, event)


def _word(text: str) -> str:
    """``text`` as a word of a subject: other characters become ``-``."""
    return _NOT_IN_A_WORD.sub("-", text).strip("-")[:WORD_CHARS_MAX].rstrip("-")


# ---------------------------------------------------------------- publishing


async def publish_all(
    parts: Parts, workspace: str, events: Sequence[Named]
) -> list[Published | NotPublished]:
    """Store the events in their order; after one that is not confirmed, no other is sent.

    Not all or none: the stream of events has no atomic writes. Sending an event again is safe.

    Raises:
        TooLarge: one of them; none was stored.
    """
    payloads = [_payload(each) for each in events]
    answers: list[Published | NotPublished] = []
    away: Unavailable | None = None
    for each, payload in zip(events, payloads, strict=True):
        if away is not None:
            answers.append(_not_published(each, Unavailable("not sent", hint=away.message)))
            continue
        try:
            answers.append(await _publish(parts, workspace, each, payload))
        except Unavailable as error:
            away = error
            answers.append(_not_published(each, error))
        except Conflict as error:
            answers.append(_not_published(each, error))
    return answers


def _not_published(named: Named, error: AnchorWatchError) -> NotPublished:
    return NotPublished(id=named.id, error=Problem(code=error.code, message=error.message, hint=error.hint))


def check_size(named: Named) -> Named:
    """The event, if it fits into a message.

    Raises:
        TooLarge.
    """
    _payload(named)
    return named


def _payload(named: Named) -> bytes:
    payload = json.dumps(cloudevents.to_json(named.event), ensure_ascii=False, separators=(",", ":")).encode()
    if len(payload) > EVENT_BYTES_MAX:
        raise TooLarge(
            f"the event is {len(payload)} bytes, the limit is {EVENT_BYTES_MAX}",
            hint="send a reference to the data",
        )
    return payload


async def _publish(parts: Parts, workspace: str, named: Named, payload: bytes) -> Published:
    """Store the event as a CloudEvent 1.0 in JSON.

    Raises:
        IdempotencyConflict: its id is another event's.
        Unavailable: not confirmed; repeating it with the same id is safe.
    """
    subject = event_subject(workspace, named.source, named.type)
    message = Message(subject, payload, headers={"Content-Type": cloudevents.JSON_FORMAT})
    known = await _was_routed(parts, workspace, named.id, message)
    reached(Edge.GATEWAY_EVENT_BEFORE)
    ack = await parts.events.publish(message)
    reached(Edge.GATEWAY_EVENT_AFTER)
    parts.counters.events.inc()
    return Published(
        id=named.id,
        sequence=ack.sequence,
        duplicate=ack.duplicate or known,
        kill_switches=await kill_switches.over_event(parts, workspace, f"{named.source}.{named.type}"),
    )


async def _was_routed(parts: Parts, workspace: str, id_: str, event: Message) -> bool:
    """Whether a session accepted the event before. The observer finds what this read misses (INV-110).

    Raises:
        IdempotencyConflict: a session accepted another event with its identity.
    """
    ours = read_event(Stored(event.subject, 0, 0, event.payload, event.headers))
    if ours is None:
        return False
    try:
        page = await parts.bus.last(
            parts.committer.stream, [INPUT.filter(workspace=workspace, input_id=ours.input_id)]
        )
        accepted = [decode(each.payload).body["body_sha256"] for each in page.messages]
    except (TooLarge, Damaged):
        return False
    for first in accepted:
        if first != ours.body_sha256:
            raise id_conflict(id_, first)
    return bool(accepted)
