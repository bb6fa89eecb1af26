"""Reads and repairs of the journal itself: the anchor and its history, the live stream, verify and repair."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from anchorwatch.bus.port import Consumer, ConsumerSpec, Stored
from anchorwatch.codec import decode_anchor
from anchorwatch.core.anchor import Anchor, Status
from anchorwatch.core.errors import AnchorWatchError, BadInput, Damaged, NotFound, Unavailable
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Record
from anchorwatch.core.times import iso
from anchorwatch.journal.blocks import BlockJournal
from anchorwatch.journal.integrity.accept import Acceptance
from anchorwatch.journal.integrity.findings import Trouble
from anchorwatch.journal.integrity.repair import Order, Repairer
from anchorwatch.journal.integrity.verify import verify
from anchorwatch.journal.reading import STALE_ATTEMPTS_MAX
from anchorwatch.journal.timeline import Narrator
from anchorwatch.topology.subjects import SessionSubjects
from fastapi import APIRouter, Header, Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from sse_starlette import EventSourceResponse, ServerSentEvent

from anchorwatch_gateway.errors import CONFLICT
from anchorwatch_gateway.guard import by
from anchorwatch_gateway.parts import Parts
from anchorwatch_gateway.requests import (
    LAST_ID_PATTERN,
    PLAN_PATTERN,
    SEQUENCE_MAX,
    Body,
    Cursor,
    Limit,
    Page,
    PartsDep,
    RefDep,
    answers,
)
from anchorwatch_gateway.sessions import find

router = APIRouter(prefix="/api", tags=["journal"])

ACCEPT_S_MAX = 5.0
"""How long one request repairs sessions before it asks for another one."""
STREAM_BATCH = 64
STREAM_WAIT_S = 1.0
CURSOR_DIGITS_MAX = 18


class AnchorRecord(BaseModel):
    """The record of a change: ``kind`` says what changed the anchor."""

    sequence: int
    kind: str
    at: str
    by: str
    reason: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentAnchor(Anchor):
    """The anchor, and the record that it is from."""

    record: AnchorRecord


class FieldChange(BaseModel):
    """A field before and after a change."""

    from_: Any = Field(alias="from")
    to: Any


class AnchorChange(BaseModel):
    """A change of the anchor. ``kind`` is `damaged` for a record that cannot be read."""

    sequence: int
    kind: str
    at: str
    by: str
    reason: str
    sha256: str = Field("", description="absent: the record cannot be read")
    changes: dict[str, FieldChange] = Field(description="by field")


class Finding(BaseModel):
    """A damaged or missing record."""

    id: str
    sequence: int
    through: int = Field(description="of several lost records: the last one")
    register_: str = Field(alias="register")
    trouble: Trouble
    what: str
    consequence: str


class VerifiedFinding(Finding):
    """A finding, and the repair that accepted it."""

    accepted_at: int | None = Field(description="journal sequence of the repair; null: not accepted")


class RepairEntry(BaseModel):
    """An earlier repair. ``accepted``: number of findings."""

    sequence: int
    at: str
    by: str
    note: str
    accepted: int


class Verification(BaseModel):
    """Every record of a session, checked up to sequence ``through``."""

    session: str
    whole: bool = Field(description="false: there is a finding that no repair has accepted")
    runs: bool
    status: Status | Literal["unknown"]
    records: int
    first: int
    last: int
    through: int
    findings: list[VerifiedFinding]
    repairs: list[RepairEntry]


class Remedy(Finding):
    """A finding, and what the repair makes of it."""

    meaning: str


class RepairPlan(BaseModel):
    """What a repair would do."""

    session: str
    plan: str = Field(description="digest of the plan, which confirms it")
    behind: int = Field(description="journal sequence of the session's last planner record")
    status: Status
    restarts: bool
    ends_turn: str | None
    run_id: int
    fence: int
    objectives: list[str]
    constraints: list[str]
    anchor_of: int = Field(description="journal sequence of the last readable anchor")
    unclear: list[str] = Field(description="calls with an outcome that only a person can find out")
    remedies: list[Remedy]


class Repair(Body):
    """The confirmed plan of a repair."""

    plan: str = Field(pattern=PLAN_PATTERN, description="`plan` of the preview")
    note: str = Field("", max_length=500)


class Repaired(BaseModel):
    """A repair that was carried out."""

    session: str
    plan: str
    sequence: int
    by: str
    replayed: bool = Field(description="true: the plan had been carried out before")


class LostRecord(BaseModel):
    """A lost record. ``command``: tool, resource and more of a command or of its effect."""

    sequence: int
    workspace: str
    session: str
    register_: str = Field(alias="register")
    command: dict[str, str] = Field({}, description="absent: it is not about a command")


class JournalGap(BaseModel):
    """A range of lost records."""

    first: int
    through: int
    end_known: bool = Field(description="false: more may be lost than is listed")
    found_by: str
    at: str
    unlisted: int = Field(description="number of lost records with an unknown content")
    records: list[LostRecord]


class SessionName(BaseModel):
    """A session of a workspace."""

    workspace: str
    session: str


class AcceptedLoss(BaseModel):
    """Who accepted the loss, and when."""

    by: str
    note: str
    at: str
    sequence: int


class JournalLoss(BaseModel):
    """What the journal lost at its end."""

    held: bool = Field(description="true: planners and executors start nothing until the loss is accepted")
    plan: str | None = Field(description="digest of the loss, which confirms it; null: nothing is lost")
    since: str | None
    accepted: AcceptedLoss | None
    gaps: list[JournalGap]
    sessions: list[SessionName] = Field(description="sessions that may have lost records")
    sessions_gone: list[SessionName]


class AcceptLoss(Body):
    """The confirmed loss."""

    plan: str = Field(pattern=PLAN_PATTERN, description="`plan` of the loss that was shown")
    note: str = Field("", max_length=500)


class LossProgress(BaseModel):
    """How far an acceptance is."""

    plan: str
    left: int = Field(description="sessions that are not repaired yet; above 0: repeat the request")
    sequence: int | None = Field(description="journal sequence of the hold's end; null: it has not ended")
    by: str
    replayed: bool


# ---------------------------------------------------------------- routes


@router.get("/sessions/{session}/anchor", responses=answers(CurrentAnchor | Page[AnchorChange]))
async def get_anchor(
    parts: PartsDep,
    ref: RefDep,
    history: Annotated[bool, Query(description="a page of its changes instead, oldest first")] = False,  # noqa: FBT002 - a query parameter
    limit: Limit = 50,
    cursor: Cursor = None,
) -> JSONResponse:
    """Show the anchor from the journal itself; ``record`` says when it changed last, why, and who changed it."""
    return JSONResponse(
        await read_history(parts, ref, cursor, limit) if history else await read_anchor(parts, ref)
    )


@router.get(
    "/sessions/{session}/stream",
    response_class=EventSourceResponse,
    responses={
        200: {"content": {"text/event-stream": {}}, "description": "Events `record`, one timeline entry each"}
    },
)
async def stream_records(
    parts: PartsDep,
    ref: RefDep,
    after: Annotated[int | None, Query(ge=0, le=SEQUENCE_MAX, description="default: from now on")] = None,
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID", pattern=LAST_ID_PATTERN)] = None,
) -> EventSourceResponse:
    """Stream the session's records as they are written: events ``record``, each with its journal sequence as id."""
    parts.streams.check()
    await find(parts, ref)
    if last_event_id is not None:
        after = int(last_event_id)
    if after is None:
        after = (await parts.bus.stream_state(parts.committer.stream)).last_sequence
    return EventSourceResponse(follow(parts, ref, after))


@router.get("/sessions/{session}/verify", responses=answers(Verification))
async def verify_session(parts: PartsDep, ref: RefDep) -> JSONResponse:
    """Read and check every record of the session."""
    examination = await verify(parts.bus, parts.committer.stream, parts.journal, ref)
    return JSONResponse(examination.to_json())


@router.get("/sessions/{session}/repair", responses={**answers(RepairPlan), **CONFLICT})
async def preview_repair(parts: PartsDep, ref: RefDep) -> JSONResponse:
    """Show what a repair would do now, and what each finding will mean. Nothing is changed."""
    return JSONResponse((await repairer(parts).plan(ref)).to_json())


@router.post("/sessions/{session}/repair", responses=CONFLICT)
async def repair_session(body: Repair, parts: PartsDep, ref: RefDep) -> Repaired:
    """Carry out the previewed plan; 409 `changed_since` if the session has changed since the preview."""
    order = Order(body.plan, by(), body.note, parts.clock.now_ms())
    done = await repairer(parts).carry_out(ref, order)
    parts.seen.note(done.sequence)
    return Repaired(
        session=ref.session, plan=body.plan, sequence=done.sequence, by=done.by, replayed=done.replayed
    )


@router.get("/journal", responses=answers(JournalLoss))
async def show_journal_loss(parts: PartsDep) -> JSONResponse:
    """Show whether the mesh is held because the journal lost its end, what was lost, and which sessions it concerns."""
    return JSONResponse((await acceptance(parts).show()).to_json())


@router.post("/journal/accept", responses=CONFLICT)
async def accept_journal_loss(body: AcceptLoss, parts: PartsDep) -> LossProgress:
    """Accept the loss that was shown: commands that may have run are `unknown`, and the mesh runs again.

    ``left`` above 0: that many sessions are not repaired yet; repeat the request.
    """
    order = Order(body.plan, by(), body.note, parts.clock.now_ms())
    done = await acceptance(parts).accept(order, ACCEPT_S_MAX)
    parts.seen.note(done.sequence)
    return LossProgress(
        plan=body.plan,
        left=done.left,
        sequence=done.sequence or None,
        by=done.by or order.by,
        replayed=done.replayed,
    )


def acceptance(parts: Parts) -> Acceptance:
    return Acceptance(parts.bus, parts.committer, repairer(parts), parts.writer)


def repairer(parts: Parts) -> Repairer:
    async def pack_of(workspace: str, agent: str) -> str:
        try:
            return (await parts.agents.get(workspace, agent)).pack
        except (NotFound, Damaged):
            return ""

    blocks = BlockJournal(parts.bus, parts.committer, parts.writer)
    return Repairer(parts.bus, parts.committer, parts.journal, blocks, parts.writer, pack_of)


# ---------------------------------------------------------------- anchors


async def read_anchor(parts: Parts, ref: SessionRef) -> dict[str, Any]:
    """A `CurrentAnchor`.

    Raises:
        NotFound, Unavailable, Damaged.
    """
    _, sequence = await find(parts, ref)
    stored = (await _range(parts, ref, sequence, 1))[0][0]
    anchor, record = decode_anchor(stored.payload)
    parts.seen.note(stored.sequence)
    return {**anchor.to_json(), "record": _record(stored, record)}


async def read_history(parts: Parts, ref: SessionRef, cursor: str | None, limit: int) -> dict[str, Any]:
    """A page of `AnchorChange`, oldest first.

    Raises:
        NotFound, Unavailable. BadInput: the cursor is not valid.
    """
    after = _sequence(cursor)
    # The first change of a page is compared with the one before the page.
    messages, more = await _range(parts, ref, after, limit + (1 if after else 0))
    if not messages and not after:
        raise NotFound(f"there is no session {ref.session}", hint="`anchorwatch sessions` lists them")
    before: Anchor | None = None
    entries = []
    for stored in messages:
        anchor, entry = _change(stored, before)
        before = anchor or before
        if stored.sequence > after:
            entries.append(entry)
    if messages:
        parts.seen.note(messages[-1].sequence)
    return {"data": entries, "next": str(messages[-1].sequence) if more else None}


async def _range(parts: Parts, ref: SessionRef, start: int, limit: int) -> tuple[tuple[Stored, ...], bool]:
    subject = SessionSubjects(ref).anchors
    for _ in range(STALE_ATTEMPTS_MAX):
        page = await parts.bus.range(parts.committer.stream, subject, start, limit)
        # A page that ended at its limit is complete; only the end of the list must be up to date.
        if page.more or page.up_to >= max(start, parts.seen.sequence):
            return page.messages, page.more
    raise Unavailable("the answering server lags", hint="try again")


def _change(stored: Stored, before: Anchor | None) -> tuple[Anchor | None, dict[str, Any]]:
    try:
        anchor, record = decode_anchor(stored.payload)
    except Damaged as error:
        at = {"sequence": stored.sequence, "kind": "damaged", "at": iso(stored.time_ms), "by": ""}
        return None, {**at, "reason": error.message, "changes": {}}
    old = before.to_json() if before else {}
    changes = {
        name: {"from": old.get(name), "to": value}
        for name, value in anchor.to_json().items()
        if old.get(name) != value
    }
    return anchor, {**_record(stored, record), "changes": changes}


def _record(stored: Stored, record: Record) -> dict[str, Any]:
    return {
        "sequence": stored.sequence,
        "kind": record.kind,
        "at": iso(record.at_ms),
        "by": str(record.body.get("by") or record.writer),
        "reason": str(record.body.get("reason", "")),
        "sha256": record.digest,
    }


def _sequence(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not cursor.isdecimal() or len(cursor) > CURSOR_DIGITS_MAX:
        raise BadInput("invalid cursor", hint="use `next` of the previous page, unchanged")
    return int(cursor)


# ---------------------------------------------------------------- live stream


async def follow(parts: Parts, ref: SessionRef, after: int) -> AsyncIterator[ServerSentEvent]:
    """The session's records after sequence ``after``, until the gateway stops.

    An event's id is its journal sequence: a client that reconnects with its last id gets every record once.
    """
    consumer: Consumer | None = None
    narrator = Narrator()
    parts.streams.open()
    try:
        while not parts.stopping.is_set():
            try:
                consumer = consumer or await _attach(parts, ref, after)
                for delivery in await consumer.fetch(STREAM_BATCH, STREAM_WAIT_S):
                    await delivery.ack()
                    stored = delivery.stored
                    # After a lost ack a record is delivered again.
                    if stored.sequence <= after:
                        continue
                    after = stored.sequence
                    parts.seen.note(after)
                    if entry := narrator.narrate(stored):
                        data = json.dumps(entry.to_json(), ensure_ascii=False)
                        yield ServerSentEvent(data, event="record", id=str(after))
            except AnchorWatchError as error:
                # The bus is away, or its restart removed the consumer: attach again after the last record.
                if not isinstance(error, NotFound):
                    await _pause(parts)
                consumer = None
    finally:
        parts.streams.close()
        if consumer is not None:
            with contextlib.suppress(AnchorWatchError):
                await consumer.close()


async def _attach(parts: Parts, ref: SessionRef, after: int) -> Consumer:
    spec = ConsumerSpec(
        parts.committer.stream, (SessionSubjects(ref).everything,), durable=None, start_sequence=after + 1
    )
    return await parts.bus.consumer(spec)


async def _pause(parts: Parts) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STREAM_WAIT_S):
            await parts.stopping.wait()
