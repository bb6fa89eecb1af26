"""What endpoints ask for: the parts, the workspace, the session, and how much of a list.

They are coroutines, though they wait for nothing: the framework would run a plain function in a thread, for every request.
"""

from __future__ import annotations

from typing import Annotated, Literal

from anchorwatch.core.names import SessionRef, check_name
from fastapi import Depends, Header, Path, Query, Request

from anchorwatch_gateway.bodies import KEY_PATTERN
from anchorwatch_gateway.parts import Parts

SEQUENCE_MAX = 2**53
"""The largest whole number that every JSON reader keeps exact."""


async def get_parts(request: Request) -> Parts:
    """The application's parts."""
    parts: Parts = request.app.state.parts
    return parts


PartsDep = Annotated[Parts, Depends(get_parts)]


async def get_workspace(
    parts: PartsDep,
    workspace: Annotated[str | None, Query(description="another workspace than the default one")] = None,
) -> str:
    """The workspace that a request speaks of."""
    return check_name(parts.settings.workspace if workspace is None else workspace, "workspace name")


WorkspaceDep = Annotated[str, Depends(get_workspace)]


async def get_ref(
    workspace: WorkspaceDep, session: Annotated[str, Path(description="the session's name")]
) -> SessionRef:
    """The session that a request speaks of."""
    return SessionRef(workspace, check_name(session, "session name"))


RefDep = Annotated[SessionRef, Depends(get_ref)]

Limit = Annotated[int, Query(ge=1, le=200, description="entries on a page, at most")]
Cursor = Annotated[str | None, Query(max_length=400, description="`next` of the page before, as it is")]
Order = Annotated[Literal["asc", "desc"], Query(description="oldest first, or newest first")]
AtLeast = Annotated[
    int | None,
    Query(ge=0, le=SEQUENCE_MAX, description="answer only when the journal was read up to this sequence"),
]
KEY_HEADER = "Idempotency-Key"
Key = Annotated[
    str | None,
    Header(
        alias=KEY_HEADER,
        min_length=1,
        max_length=255,
        pattern=KEY_PATTERN,
        description="the same key and body give the same answer, for ever; without one, a key is made and returned",
    ),
]
