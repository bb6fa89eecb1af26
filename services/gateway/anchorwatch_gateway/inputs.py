"""What is sent to sessions: messages and triggers. Each is answered after the server acknowledged it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from anchorwatch.codec import canonical_json, decode, sha256_hex
from anchorwatch.core.anchor import Status
from anchorwatch.core.errors import IdempotencyConflict, TooLarge
from anchorwatch.core.names import SessionRef
from anchorwatch.core.session.critical import CRITICAL, critical_lines, is_critical
from anchorwatch.core.times import iso
from anchorwatch.edges import Edge, reached
from anchorwatch.journal import inputs as journal
from anchorwatch.journal.artifacts import Provenance
from anchorwatch.journal.mapping import input_body
from anchorwatch.journal.reading import newest
from anchorwatch.topology.subjects import SessionSubjects
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field, StringConstraints

from anchorwatch_gateway import kill_switches
from anchorwatch_gateway.errors import CONFLICT
from anchorwatch_gateway.guard import by
from anchorwatch_gateway.kill_switches import KillSwitch
from anchorwatch_gateway.labelled import check_message
from anchorwatch_gateway.parts import Parts
from anchorwatch_gateway.requests import (
    KEY_HEADER,
    NOT_BLANK,
    PRIORITIES,
    Body,
    Key,
    PartsDep,
    PriorityName,
    RefDep,
    sent_json,
)
from anchorwatch_gateway.sessions import deleted, find

router = APIRouter(prefix="/api", tags=["sessions"])

TEXT_BYTES_MAX = 32 * 1024
"""A longer content becomes an artifact. The record holds its opening, its labelled lines, and the artifact's id."""
OPENING_CHARS = 4_000
CONTENT_BYTES_MAX = 1024 * 1024
HOLDING = "kill switches that are on and hold a session that this goes to; null: unknown"


class NewInput(Body):
    """A message to a session."""

    content: Annotated[str, StringConstraints(min_length=1, pattern=NOT_BLANK)]
    priority: PriorityName = Field("P0", description="P0: at once; P1: soon; P2: at the next check")


class Trigger(Body):
    """A request for a turn now."""

    reason: str = Field("", max_length=1000)


class Receipt(BaseModel):
    """Proof that an input was accepted, sent after the journal acknowledged it."""

    input_id: str
    session: str
    sequence: int = Field(description="journal sequence of the input")
    accepted_at: str
    replayed: bool = Field(
        description="true: an earlier request under this key was accepted; this is its receipt"
    )
    session_status: Status = Field(description="a paused session keeps the input until it is resumed")
    kill_switches: list[KillSwitch] | None = Field(description=HOLDING)
    idempotency_key: str
    artifact_id: str | None = Field(
        description="the artifact with the whole content, if it is too long for a record"
    )


# ---------------------------------------------------------------- routes


@router.post("/sessions/{session}/inputs", status_code=202, responses=CONFLICT)
async def send_message(
    body: NewInput, parts: PartsDep, ref: RefDep, request: Request, response: Response, key: Key = None
) -> Receipt:
    """Send a message to a session. 202 follows the journal's acknowledgement."""
    receipt = await accept_message(parts, InputRequest(ref, key, sent_json(request)), body)
    response.headers[KEY_HEADER] = receipt.idempotency_key
    return receipt


@router.post("/sessions/{session}/trigger", status_code=202, responses=CONFLICT)
async def trigger_turn(
    parts: PartsDep,
    ref: RefDep,
    request: Request,
    response: Response,
    key: Key = None,
    body: Trigger | None = None,
) -> Receipt:
    """Request a turn now."""
    reason = body.reason if body else ""
    receipt = await _accept(parts, InputRequest(ref, key, sent_json(request)), "trigger", 0, reason)
    response.headers[KEY_HEADER] = receipt.idempotency_key
    return receipt


# ---------------------------------------------------------------- inputs


@dataclass(frozen=True, slots=True)
class InputRequest:
    """A request to accept an input. ``body``: the JSON as the client sent it, which the receipt is bound to."""

    ref: SessionRef
    key: str | None
    body: Any


async def accept_message(parts: Parts, request: InputRequest, message: NewInput) -> Receipt:
    """Accept a message.

    Raises:
        NotFound, SessionDeleted, IdempotencyConflict, TooLarge, Unavailable.
    """
    content = message.content.encode()
    if len(content) > CONTENT_BYTES_MAX:
        raise TooLarge(
            f"the content is larger than {CONTENT_BYTES_MAX} bytes", hint="send it in several messages"
        )
    kind: Literal["message"] = "message"
    priority = PRIORITIES[message.priority]
    if not critical_lines(message.content):
        return await _accept(parts, request, kind, priority, message.content)
    # One message at a time, so that two cannot exceed the limit of labelled lines together.
    async with parts.labelling.turn(request.ref, parts.commit_deadline_s):
        anchor, _ = await find(parts, request.ref)
        key = request.key or ""
        id_ = journal.input_id("k", request.ref.workspace, request.ref.session, key)
        if not (key and await _was_accepted(parts, request.ref, id_)):
            await check_message(parts, request.ref, anchor.agent, message.content)
        return await _accept(parts, request, kind, priority, message.content)


async def _accept(
    parts: Parts, request: InputRequest, kind: Literal["message", "trigger"], priority: int, text: str
) -> Receipt:
    key = request.key or secrets.token_urlsafe(18)
    id_ = journal.input_id("k", request.ref.workspace, request.ref.session, key)
    anchor, _ = await find(parts, request.ref)
    if anchor.status == "deleted" and not await _was_accepted(parts, request.ref, id_):
        raise deleted(request.ref)
    digest = sha256_hex(canonical_json(request.body))
    artifact_id = None
    data: Mapping[str, Any] | None = None
    if len(text.encode()) > TEXT_BYTES_MAX:
        await _check_conflict(parts, request.ref, id_, digest)
        text, artifact_id = await _keep(parts, request.ref, id_, text)
        data = {"artifact_id": artifact_id}
    body = input_body(kind, priority, text=text, data=data, body_sha256=digest, by=by())
    try:
        reached(Edge.GATEWAY_INPUT_BEFORE)
        receipt = await journal.accept(
            parts.committer,
            request.ref,
            id_,
            body,
            at_ms=parts.clock.now_ms(),
            writer=parts.writer,
            deadline_s=parts.commit_deadline_s,
        )
        reached(Edge.GATEWAY_INPUT_AFTER)
    except IdempotencyConflict:
        parts.counters.inputs.labels("conflict").inc()
        raise
    parts.counters.inputs.labels("replayed" if receipt.replayed else "accepted").inc()
    parts.seen.note(receipt.sequence)
    return Receipt(
        input_id=receipt.input_id,
        session=receipt.session,
        sequence=receipt.sequence,
        accepted_at=iso(receipt.accepted_at_ms),
        replayed=receipt.replayed,
        session_status=anchor.status,
        kill_switches=await kill_switches.over(parts, request.ref, anchor.agent),
        idempotency_key=key,
        artifact_id=artifact_id,
    )


async def _was_accepted(parts: Parts, ref: SessionRef, id_: str) -> bool:
    """Whether the input was accepted: a repeated request gets its receipt also after the session was deleted."""
    return bool(await newest(parts.bus, parts.committer.stream, [SessionSubjects(ref).input(id_)]))


async def _check_conflict(parts: Parts, ref: SessionRef, id_: str, digest: str) -> None:
    """Find a conflict before bytes are kept for a request that will be refused. The fence still decides."""
    page = await parts.bus.last(parts.committer.stream, [SessionSubjects(ref).input(id_)])
    if page.messages:
        first = decode(page.messages[0].payload).body["body_sha256"]
        if first != digest:
            parts.counters.inputs.labels("conflict").inc()
            raise IdempotencyConflict(
                "the key was used before with another body",
                hint="use a new key for a new request",
                first_body_sha256=first,
            )


async def _keep(parts: Parts, ref: SessionRef, id_: str, text: str) -> tuple[str, str]:
    """Keep a long text as an artifact; returns (the text of the record, the artifact's id)."""
    opening, labelled = shorten(text)
    origin = Provenance(maker=id_, acting_as=by(), derived_from=(id_,))
    reached(Edge.GATEWAY_ARTIFACT_BEFORE)
    kept = await parts.artifacts.keep(
        ref, "message.txt", "text/plain; charset=utf-8", text.encode(), origin, at_ms=parts.clock.now_ms()
    )
    reached(Edge.GATEWAY_ARTIFACT_AFTER)
    note = f"{len(text) - len(opening)} more characters; the whole text is artifact {kept.artifact_id}"
    if labelled:
        note += f"; its other lines that begin with {CRITICAL} follow"
    return "\n".join((opening, f"[{note}]", *labelled)), kept.artifact_id


def shorten(text: str) -> tuple[str, list[str]]:
    """What a record holds of a text that is too long for it: its opening, and every labelled line of the rest once.

    The labelled lines of a session have a limit (`labelled`), so they fit into the record.
    """
    # A labelled line is an order, and half of it would be another order: the opening ends before a line that it would cut.
    at, last = 0, ""
    for last in text.splitlines(keepends=True):
        if at + len(last) > OPENING_CHARS:
            break
        at += len(last)
    opening = text[:at] if is_critical(last) else text[:OPENING_CHARS]
    return opening, list(dict.fromkeys(critical_lines(text[at:])))
