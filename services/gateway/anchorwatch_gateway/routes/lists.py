"""Lists across a workspace: effects, deliveries, artifacts, memories."""

from __future__ import annotations

from anchorwatch.core.names import SessionRef, check_token
from fastapi import APIRouter, Request, Response

from anchorwatch_gateway import effects as settling
from anchorwatch_gateway import reading
from anchorwatch_gateway.bodies import ResolveEffect
from anchorwatch_gateway.dependencies import KEY_HEADER, Key, PartsDep, WorkspaceDep
from anchorwatch_gateway.errors import CONFLICT
from anchorwatch_gateway.replies import Page, Settled
from anchorwatch_gateway.routes.turns import WindowDep, Word

router = APIRouter(prefix="/api", tags=["lists"])


@router.get("/effects")
async def effects(
    parts: PartsDep,
    workspace: WorkspaceDep,
    window: WindowDep,
    response: Response,
    session: Word = None,
    state: Word = None,
    tool: Word = None,
    turn: Word = None,
) -> Page:
    """Commands and what running them did. A call id is ``SESSION/RUN.STEP.N``."""
    filters = {"workspace": workspace, "session": session, "state": state, "tool": tool, "turn": turn}
    return await reading.page(parts, response, "effects", window, filters)


@router.post("/effects/resolve", response_model=Settled, responses=CONFLICT)
async def resolve(
    body: ResolveEffect,
    parts: PartsDep,
    workspace: WorkspaceDep,
    request: Request,
    response: Response,
    key: Key = None,
) -> Settled:
    """Settle an effect that is `unknown`, once: it was done, or it was not."""
    settled = await settling.resolve(parts, workspace, body, key, request.state.json)
    response.headers[KEY_HEADER] = settled.idempotency_key
    return settled


@router.get("/deliveries")
async def deliveries(
    parts: PartsDep,
    workspace: WorkspaceDep,
    window: WindowDep,
    response: Response,
    session: Word = None,
    state: Word = None,
    channel: Word = None,
) -> Page:
    """Notifications and what became of them."""
    filters = {"workspace": workspace, "session": session, "state": state, "channel": channel}
    return await reading.page(parts, response, "deliveries", window, filters)


@router.get("/artifacts")
async def artifacts(
    parts: PartsDep, workspace: WorkspaceDep, window: WindowDep, response: Response, session: Word = None
) -> Page:
    """Kept files, each with its digest and where it came from."""
    return await reading.page(
        parts, response, "artifacts", window, {"workspace": workspace, "session": session}
    )


@router.get("/artifacts/{artifact}/content", response_class=Response)
async def content(parts: PartsDep, workspace: WorkspaceDep, artifact: str) -> Response:
    """The bytes of an artifact, checked against its recorded digest."""
    params = {"workspace": workspace, "artifact_id": check_token(artifact, "artifact id")}
    found = await reading.ask(parts, Response(), "artifact", params)
    kept, data = await parts.artifacts.read(SessionRef(workspace, found.result["session"]), artifact)
    # What an agent made is shown as what it is, and never run in a browser on this origin.
    headers = {
        "Content-Disposition": "attachment",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "sandbox",
        "ETag": f'"{kept.sha256}"',
    }
    return Response(data, media_type=_media_type(kept.media_type), headers=headers)


@router.get("/memories")
async def memories(
    parts: PartsDep,
    workspace: WorkspaceDep,
    window: WindowDep,
    response: Response,
    session: Word = None,
    topic: Word = None,
    q: Word = None,
) -> Page:
    """What agents were told to remember; ``q`` searches."""
    filters = {"workspace": workspace, "session": session, "topic": topic, "q": q}
    return await reading.page(parts, response, "memories", window, filters)


def _media_type(recorded: str) -> str:
    printable = recorded.isascii() and recorded.isprintable()
    return recorded if printable and "/" in recorded else "application/octet-stream"
