"""Accepting inputs: the journal has acknowledged one before its receipt is given."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from anchorwatch.codec import canonical_json, decode, sha256_hex
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

from anchorwatch_gateway import kill_switches
from anchorwatch_gateway.bodies import PRIORITIES, NewInput, Trigger
from anchorwatch_gateway.caller import by
from anchorwatch_gateway.parts import Parts
from anchorwatch_gateway.replies import Receipt
from anchorwatch_gateway.sessions import find, gone

TEXT_BYTES_MAX = 32 * 1024
"""A longer content becomes an artifact. The record holds its beginning, its labelled lines, and where the rest is."""
OPENING_CHARS = 4_000
CRITICAL_BYTES_MAX = 128 * 1024
"""The labelled lines behind the opening, together: they must fit into one record, beside the opening."""
CONTENT_BYTES_MAX = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Request:
    """One request to accept an input. ``body`` is the JSON as the client sent it: what the receipt is bound to."""

    ref: SessionRef
    key: str | None
    body: Any


async def say(parts: Parts, request: Request, message: NewInput) -> Receipt:
    """Accept a message.

    Raises:
        NotFound, SessionDeleted, IdempotencyConflict, TooLarge, Unavailable.
    """
    content = message.content.encode()
    if len(content) > CONTENT_BYTES_MAX:
        raise TooLarge(
            f"the content is larger than {CONTENT_BYTES_MAX} bytes", hint="send it in several messages"
        )
    return await _accept(parts, request, "message", PRIORITIES[message.priority], message.content)


async def trigger(parts: Parts, request: Request, wish: Trigger) -> Receipt:
    """Accept a person's wish for a turn now. Errors as `say`."""
    return await _accept(parts, request, "trigger", 0, wish.reason)


async def _accept(
    parts: Parts, request: Request, kind: Literal["message", "trigger"], priority: int, text: str
) -> Receipt:
    key = request.key or secrets.token_urlsafe(18)
    id_ = journal.input_id("k", request.ref.workspace, request.ref.session, key)
    anchor, _ = await find(parts, request.ref)
    if anchor.status == "deleted" and not await _stands(parts, request.ref, id_):
        raise gone(request.ref)
    digest = sha256_hex(canonical_json(request.body))
    artifact_id = None
    data: Mapping[str, Any] | None = None
    if len(text.encode()) > TEXT_BYTES_MAX:
        await _check_first(parts, request.ref, id_, digest)
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


async def _stands(parts: Parts, ref: SessionRef, id_: str) -> bool:
    """Whether the input was accepted: whoever asks again is told so for ever, whatever became of the session."""
    return bool(await newest(parts.bus, parts.committer.stream, [SessionSubjects(ref).input(id_)]))


async def _check_first(parts: Parts, ref: SessionRef, id_: str, digest: str) -> None:
    """Find a conflict before bytes are kept for a request that will be refused; the fence still decides."""
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
    """Keep a long text as an artifact; returns (what the record says, the artifact's id).

    Raises:
        TooLarge: its labelled lines do not fit into a record.
    """
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
    """What a record holds of a text that is too long for it: its opening, and every labelled line of the rest.

    Raises:
        TooLarge: those lines do not fit either.
    """
    # A labelled line is an order: half of it would be another one. So the opening ends before the line that it would cut.
    at, last = 0, ""
    for last in text.splitlines(keepends=True):
        if at + len(last) > OPENING_CHARS:
            break
        at += len(last)
    opening = text[:at] if is_critical(last) else text[:OPENING_CHARS]
    labelled = critical_lines(text[at:])
    size = len("\n".join(labelled).encode())
    if size > CRITICAL_BYTES_MAX:
        raise TooLarge(
            f"the lines that begin with {CRITICAL} are {size} bytes, the limit is {CRITICAL_BYTES_MAX} in one message",
            hint="such a line stands in every prompt: label fewer or shorter ones, or send several messages",
        )
    return opening, labelled
