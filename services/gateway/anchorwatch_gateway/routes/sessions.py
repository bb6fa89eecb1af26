"""Sessions: make one, tell it something, look at its anchor, follow it."""

from __future__ import annotations

from typing import Annotated, Any

from anchorwatch.core.names import SessionRef
from fastapi import APIRouter, Header, Query, Request, Response
from sse_starlette import EventSourceResponse

from anchorwatch_gateway import anchors, inputs, live
from anchorwatch_gateway import sessions as work
from anchorwatch_gateway.bodies import LAST_ID_PATTERN, NewInput, NewSession, Trigger
from anchorwatch_gateway.dependencies import (
    KEY_HEADER,
    SEQUENCE_MAX,
    Cursor,
    Key,
    Limit,
    PartsDep,
    RefDep,
    WorkspaceDep,
)
from anchorwatch_gateway.errors import CONFLICT
from anchorwatch_gateway.replies import Page, Receipt, Session

router = APIRouter(prefix="/api/sessions", tags=["sessions"])


@router.post(
    "",
    status_code=201,
    response_model=Session,
    responses={**CONFLICT, 200: {"model": Session, "description": "It was there already"}},
)
async def create(body: NewSession, parts: PartsDep, workspace: WorkspaceDep, response: Response) -> Session:
    """Make a session of an agent. The same asked again is answered 200 with the session that is there."""
    session = await work.create(parts, SessionRef(workspace, body.name), body)
    response.status_code = 201 if session.created else 200
    return session


@router.post("/{session}/inputs", status_code=202, response_model=Receipt, responses=CONFLICT)
async def accept(
    body: NewInput, parts: PartsDep, ref: RefDep, request: Request, response: Response, key: Key = None
) -> Receipt:
    """Tell the session something. 202 is sent after the journal acknowledged it."""
    receipt = await inputs.say(parts, inputs.Request(ref, key, request.state.json), body)
    response.headers[KEY_HEADER] = receipt.idempotency_key
    return receipt


@router.post("/{session}/trigger", status_code=202, response_model=Receipt, responses=CONFLICT)
async def trigger(
    parts: PartsDep,
    ref: RefDep,
    request: Request,
    response: Response,
    key: Key = None,
    body: Trigger | None = None,
) -> Receipt:
    """Ask for a turn now."""
    given = getattr(request.state, "json", None) or {}
    receipt = await inputs.trigger(parts, inputs.Request(ref, key, given), body or Trigger.model_validate({}))
    response.headers[KEY_HEADER] = receipt.idempotency_key
    return receipt


@router.get("/{session}/anchor")
async def anchor(
    parts: PartsDep,
    ref: RefDep,
    history: Annotated[bool, Query(description="a page of its changes, oldest first, in its place")] = False,  # noqa: FBT002 - a query parameter
    limit: Limit = 50,
    cursor: Cursor = None,
) -> dict[str, Any] | Page:
    """The anchor from the journal itself; ``record`` says where it stands, what changed it, when, and who."""
    if history:
        return await anchors.history(parts, ref, cursor, limit)
    return await anchors.read(parts, ref)


@router.get("/{session}/stream", response_class=EventSourceResponse)
async def stream(
    parts: PartsDep,
    ref: RefDep,
    after: Annotated[int | None, Query(ge=0, le=SEQUENCE_MAX, description="none: from now on")] = None,
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID", pattern=LAST_ID_PATTERN)] = None,
) -> EventSourceResponse:
    """The session's records as they come: events ``record``, each with its journal sequence as id."""
    parts.streams.check()
    await work.find(parts, ref)
    if last_event_id is not None:
        after = int(last_event_id)
    if after is None:
        after = (await parts.bus.stream_state(parts.committer.stream)).last_sequence
    return EventSourceResponse(live.follow(parts, ref, after))
