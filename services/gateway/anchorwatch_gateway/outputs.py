"""What sessions produce, across a workspace: effects and their resolution, notifications, artifacts, memories."""

from __future__ import annotations

import secrets
from typing import Any, Literal

from anchorwatch.codec import canonical_json, sha256_hex
from anchorwatch.core.effect import EffectState
from anchorwatch.core.effect.resolve import decide_resolve
from anchorwatch.core.effect.state import OutcomeState, Owner, Resolution
from anchorwatch.core.errors import Fenced, NotFound
from anchorwatch.core.names import CallId, SessionRef, check_token, parse_call
from anchorwatch.core.times import iso
from anchorwatch.edges import Edge, reached
from anchorwatch.journal.deliveries import DeliveryState
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from anchorwatch_gateway.errors import CONFLICT
from anchorwatch_gateway.guard import by
from anchorwatch_gateway.parts import Parts
from anchorwatch_gateway.requests import (
    KEY_HEADER,
    Body,
    Clipped,
    Filter,
    Key,
    Page,
    PartsDep,
    SessionFilter,
    TurnFilter,
    WindowDep,
    WorkspaceDep,
    answers,
    read,
    respond_page,
    sent_json,
)

router = APIRouter(prefix="/api", tags=["outputs"])

RACES_MAX = 5
NOTE_CHARS_MAX = 1000
_KEY_CHARS = 32
VerdictName = Literal["done", "not-done"]
VERDICTS: dict[VerdictName, Literal["done", "not_done"]] = {"done": "done", "not-done": "not_done"}


class Effect(BaseModel):
    """A command and its outcome. Times, owners and sequences are null until they are known."""

    call: str = Field(description="SESSION/RUN.STEP.N")
    session: str
    run_id: int
    turn_id: str
    generation: int | None = Field(description="of its turn's planner; null: the command cannot be read")
    agent: str
    pool: str
    tool: str
    args: dict[str, Any]
    resource: str
    state: Literal["pending", "gated", "claimed"] | OutcomeState
    owner: str | None = Field(description="instance of the executor that claimed it")
    incarnation: str | None
    claim_sequence: int | None
    attempts: int
    effect_key: str = Field(description="the idempotency key for the real system")
    text: str = Field(description="the result for the model")
    data: dict[str, Any] = Field(description="the result for programs")
    rule: str = Field(description="the rule that refused it")
    error: str
    after: list[str] = Field(description="calls that it waits for")
    blocks: str = Field(description="the resource that its unknown outcome blocks; empty: none")
    settled_by: str
    verdict: Literal["done", "not_done"] | None = Field(description="of the person who resolved it")
    note: str | None
    late: int = Field(description="number of results that arrived after its outcome")
    sequence: int
    outcome_sequence: int | None
    decided_at: str
    claimed_at: str | None
    ended_at: str | None
    clipped: Clipped = False


class ResolveEffect(Body):
    """What a person found out about an effect with an unknown outcome."""

    call: str = Field(max_length=128, description="SESSION/RUN.STEP.N, as `effects` prints it")
    verdict: VerdictName = Field(description="whether the effect was done")
    note: str = Field("", max_length=NOTE_CHARS_MAX, description="how that is known")


class ResolvedEffect(BaseModel):
    """An effect whose outcome was unknown, with the verdict of a person."""

    call: str
    session: str
    tool: str
    resource: str
    verdict: VerdictName
    note: str
    by: str = Field(description="who resolved it")
    at: str
    sequence: int = Field(description="journal sequence of its outcome")
    replayed: bool = Field(description="true: an earlier request under this key resolved it")
    idempotency_key: str


class Delivery(BaseModel):
    """A notification on one channel, and its state."""

    delivery_id: str
    session: str
    channel: str
    channel_kind: str
    record: int = Field(description="journal sequence of the record that it is about")
    kinds: list[str]
    title: str
    state: DeliveryState
    owner: str
    claims: int
    error: str
    first_at: str
    last_at: str
    sequence: int
    clipped: Clipped = False


class Artifact(BaseModel):
    """A kept file with its digest and provenance."""

    artifact_id: str
    session: str
    name: str
    media_type: str
    size_bytes: int
    sha256: str
    run_id: int | None
    call: str = Field(description="the call that made it; empty: a long message")
    acting_as: str
    derived_from: list[str]
    by: str
    at: str
    sequence: int
    clipped: Clipped = False


class Memory(BaseModel):
    """A text that an agent remembers."""

    memory_id: str
    session: str
    call: str
    topic: str
    text: str
    at: str
    sequence: int
    clipped: Clipped = False


# ---------------------------------------------------------------- routes


@router.get("/effects", responses=answers(Page[Effect]))
async def list_effects(
    parts: PartsDep,
    workspace: WorkspaceDep,
    window: WindowDep,
    session: SessionFilter = None,
    state: Filter = None,
    tool: Filter = None,
    turn: TurnFilter = None,
) -> JSONResponse:
    """List commands and their outcomes."""
    filters = {"workspace": workspace, "session": session, "state": state, "tool": tool, "turn": turn}
    return await respond_page(parts, "effects", window, filters)


@router.post("/effects/resolve", responses=CONFLICT)
async def resolve_effect(
    body: ResolveEffect,
    parts: PartsDep,
    workspace: WorkspaceDep,
    request: Request,
    response: Response,
    key: Key = None,
) -> ResolvedEffect:
    """Resolve an effect with an unknown outcome, once: it was done, or it was not."""
    resolved = await resolve(parts, workspace, body, key, sent_json(request))
    response.headers[KEY_HEADER] = resolved.idempotency_key
    return resolved


@router.get("/deliveries", responses=answers(Page[Delivery]))
async def list_deliveries(
    parts: PartsDep,
    workspace: WorkspaceDep,
    window: WindowDep,
    session: SessionFilter = None,
    state: Filter = None,
    channel: Filter = None,
) -> JSONResponse:
    """List notifications and their states."""
    filters = {"workspace": workspace, "session": session, "state": state, "channel": channel}
    return await respond_page(parts, "deliveries", window, filters)


@router.get("/artifacts", responses=answers(Page[Artifact]))
async def list_artifacts(
    parts: PartsDep, workspace: WorkspaceDep, window: WindowDep, session: SessionFilter = None
) -> JSONResponse:
    """List kept files with digest and provenance."""
    return await respond_page(parts, "artifacts", window, {"workspace": workspace, "session": session})


@router.get(
    "/artifacts/{artifact}/content",
    response_class=Response,
    responses={
        200: {"content": {"application/octet-stream": {}}, "description": "The bytes, in their media type"}
    },
)
async def get_artifact_content(parts: PartsDep, workspace: WorkspaceDep, artifact: str) -> Response:
    """Return the bytes of an artifact, checked against its recorded digest."""
    params = {"workspace": workspace, "artifact_id": check_token(artifact, "artifact id")}
    found = await read(parts, "artifact", params)
    kept, data = await parts.artifacts.read(SessionRef(workspace, found.result["session"]), artifact)
    # An agent made it: a browser must not run it on this origin.
    headers = {
        "Content-Disposition": "attachment",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox",
        "ETag": f'"{kept.sha256}"',
    }
    printable = kept.media_type.isascii() and kept.media_type.isprintable() and "/" in kept.media_type
    media_type = kept.media_type if printable else "application/octet-stream"
    return Response(data, media_type=media_type, headers=headers)


@router.get("/memories", responses=answers(Page[Memory]))
async def list_memories(
    parts: PartsDep,
    workspace: WorkspaceDep,
    window: WindowDep,
    session: SessionFilter = None,
    topic: Filter = None,
    q: Filter = None,
) -> JSONResponse:
    """List what agents remember; ``q`` searches by words, best match first."""
    filters = {"workspace": workspace, "session": session, "topic": topic, "q": q}
    return await respond_page(parts, "memories", window, filters)


# ---------------------------------------------------------------- resolution


async def resolve(
    parts: Parts,
    workspace: str,
    wanted: ResolveEffect,
    key: str | None,
    body: object,
) -> ResolvedEffect:
    """Resolve it, or find that this very request has resolved it before. ``body``: what the key is bound to.

    Raises:
        BadInput: ``call`` is not a call id. NotFound: the call is unknown. Conflict: its outcome is not `unknown`, or
        another request resolved it. IdempotencyConflict, Unavailable, Damaged.
    """
    session, call = parse_call(wanted.call)
    ref = SessionRef(workspace, session)
    key = key or secrets.token_urlsafe(18)
    asked = Resolution(
        VERDICTS[wanted.verdict],
        wanted.note,
        sha256_hex(key.encode())[:_KEY_CHARS],
        sha256_hex(canonical_json(body)),
        parts.clock.now_ms(),
    )
    state, replayed = await _resolve(parts, ref, call, asked)
    parts.seen.note(state.head)
    outcome = state.outcome
    assert outcome is not None and outcome.resolution is not None  # noqa: S101, PT018 - just written, or just read
    return ResolvedEffect(
        call=wanted.call,
        session=session,
        tool=outcome.tool,
        resource=outcome.resource,
        verdict=wanted.verdict,
        note=wanted.note,
        by=outcome.by,
        at=iso(outcome.resolution.at_ms),
        sequence=state.outcome_sequence,
        replayed=replayed,
        idempotency_key=key,
    )


async def _resolve(
    parts: Parts, ref: SessionRef, call: CallId, asked: Resolution
) -> tuple[EffectState, bool]:
    """The effect with its outcome, and whether an earlier request under this key resolved it."""
    newest = (await parts.bus.stream_state(parts.committer.stream)).last_sequence
    pool = await parts.effects.find_pool(ref, call, newest)
    if pool is None:
        raise NotFound(
            f"the call {ref.session}/{call} is unknown",
            hint="`anchorwatch effects --state unknown` lists what can be resolved",
        )
    name = f"{ref.session}/{call}"
    instance, _, incarnation = parts.writer.rpartition(":")
    for _ in range(RACES_MAX):
        state = await parts.effects.look(ref, pool, call, newest)
        events = decide_resolve(name, state, asked, by(), Owner(instance, incarnation))
        if not events:
            return state, True
        try:
            reached(Edge.GATEWAY_RESOLVE_BEFORE)
            state = await parts.effects.append_all(
                ref, pool, call, state, events, asked.at_ms, parts.commit_deadline_s
            )
            reached(Edge.GATEWAY_RESOLVE_AFTER)
            return state, False
        except Fenced:
            # Another person resolved it, or a late executor wrote: read it again.
            newest = (await parts.bus.stream_state(parts.committer.stream)).last_sequence
    raise Fenced(f"{name} is being written by others", hint="try again")
