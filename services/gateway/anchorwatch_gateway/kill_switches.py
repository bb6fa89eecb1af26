"""Kill switches of a session, an agent, a workspace or the mesh: list them, turn them, and find those that hold a session."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Sequence

from anchorwatch.codec import canonical_json, sha256_hex
from anchorwatch.core.agents import Name
from anchorwatch.core.errors import AnchorWatchError, BadInput
from anchorwatch.core.names import SessionRef
from anchorwatch.core.times import iso
from anchorwatch.edges import Edge, reached
from anchorwatch.journal.inputs import input_id
from anchorwatch.journal.orders import Asked
from anchorwatch.journal.switches import WHOLE, Scope, Switch, subjects_of
from anchorwatch.service.agents import is_subscribed
from anchorwatch.topology.subjects import MESH, MESH_SWITCH, SWITCH
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from anchorwatch_gateway.errors import CONFLICT
from anchorwatch_gateway.guard import by
from anchorwatch_gateway.parts import Parts
from anchorwatch_gateway.requests import (
    KEY_HEADER,
    Key,
    Page,
    PartsDep,
    Reason,
    WindowDep,
    WorkspaceDep,
    page_of,
    sent_json,
)
from anchorwatch_gateway.sessions import find, find_living

router = APIRouter(prefix="/api/kill-switches", tags=["controls"])

SESSIONS_CHECKED_MAX = 100
SUBJECTS_MAX = 1_000


class TurnSwitch(Reason):
    """A kill switch to turn: of a session or an agent (``name``), of the workspace, or of the whole mesh."""

    scope: Scope
    name: Name | None = None
    on: bool


class KillSwitch(BaseModel):
    """A kill switch, or the hold of a mesh with a damaged journal. While it is on, its sessions start no turn and no command."""

    scope: Scope
    name: str | None = Field(description="of the session or agent; null: of the workspace or the mesh")
    on: bool
    by: str = Field(description="who turned it last")
    at: str
    reason: str
    sequence: int


class TurnedSwitch(KillSwitch):
    """A kill switch after an order."""

    replayed: bool = Field(description="true: an earlier request under this key turned it")
    idempotency_key: str


@router.get("")
async def list_kill_switches(parts: PartsDep, workspace: WorkspaceDep, window: WindowDep) -> Page[KillSwitch]:
    """List every kill switch that was ever turned, by scope and name."""
    found = [_row(each) for each in await parts.switches.all(workspace)]
    return page_of(found, window, lambda row: f"{row.scope}/{row.name or ''}")


@router.post("", responses=CONFLICT)
async def turn_kill_switch(
    body: TurnSwitch,
    parts: PartsDep,
    workspace: WorkspaceDep,
    request: Request,
    response: Response,
    key: Key = None,
) -> TurnedSwitch:
    """Turn a kill switch on or off. While it is on, its sessions start no turn and no command."""
    turned = await turn(parts, workspace, body, key, sent_json(request))
    response.headers[KEY_HEADER] = turned.idempotency_key
    return turned


async def over(parts: Parts, ref: SessionRef, agent: str) -> list[KillSwitch] | None:
    """The switches that hold a session of ``agent``; None if that cannot be read: an accepted input stays accepted."""
    return await _readable(parts.switches.on_over(ref, agent))


async def over_event(parts: Parts, workspace: str, event: str) -> list[KillSwitch] | None:
    """The switches that hold a session which subscribes to this event, and the workspace's. None as in `over`.

    Of very many sessions, only the first ones are checked.
    """
    return await _readable(_over_event(parts, workspace, event))


async def _over_event(parts: Parts, workspace: str, event: str) -> list[Switch]:
    subjects = {SWITCH.at(workspace=workspace, scope="workspace", name=WHOLE): None, MESH_SWITCH: None}
    for spec, sessions in await parts.agents.subscribers(workspace):
        if is_subscribed(spec, event):
            for session in sessions[:SESSIONS_CHECKED_MAX]:
                subjects |= dict.fromkeys(subjects_of(SessionRef(workspace, session), spec.name))
    return await parts.switches.on_among(list(subjects)[:SUBJECTS_MAX])


async def _readable(found: Awaitable[Sequence[Switch]]) -> list[KillSwitch] | None:
    try:
        return [_row(each) for each in await found]
    except AnchorWatchError:
        return None


async def turn(
    parts: Parts, workspace: str, wanted: TurnSwitch, key: str | None, body: object
) -> TurnedSwitch:
    """Turn a switch. ``body``: what the key is bound to.

    Raises:
        BadInput: the scope needs a name, or takes none. NotFound: there is no such session or agent. SessionDeleted.
        Refused: it is so already. IdempotencyConflict, Fenced, Unavailable, Damaged.
    """
    key = key or secrets.token_urlsafe(18)
    control_id = input_id("c", workspace, "kill-switch", key)
    asked = Asked(control_id, by(), sha256_hex(canonical_json(body)))
    (switch, replayed), joined = await parts.in_flight.run(
        (control_id, asked.body_sha256), lambda: _turn(parts, workspace, wanted, asked)
    )
    return TurnedSwitch(**dict(_row(switch)), replayed=replayed or joined, idempotency_key=key)


async def _turn(parts: Parts, workspace: str, wanted: TurnSwitch, asked: Asked) -> tuple[Switch, bool]:
    name = _name(wanted)
    workspace = MESH if wanted.scope == "mesh" else workspace
    if not await parts.switches.was_turned(workspace, asked):
        await _check_exists(parts, workspace, wanted.scope, name, on=wanted.on)
    switch = Switch(workspace, wanted.scope, name, wanted.on, asked.by, parts.clock.now_ms(), wanted.reason)
    reached(Edge.GATEWAY_SWITCH_BEFORE)
    turned = await parts.switches.turn(switch, asked, deadline_s=parts.commit_deadline_s)
    reached(Edge.GATEWAY_SWITCH_AFTER)
    return turned


def _name(wanted: TurnSwitch) -> str:
    if (wanted.name is None) == (wanted.scope in {"session", "agent"}):
        raise BadInput(
            f"the kill switch of a {wanted.scope} {'takes no' if wanted.name else 'needs a'} name",
            hint="name the session or the agent; the workspace is the request's",
        )
    return WHOLE if wanted.name is None else wanted.name


async def _check_exists(parts: Parts, workspace: str, scope: Scope, name: str, *, on: bool) -> None:
    if scope == "agent":
        await parts.agents.get(workspace, name)
    elif scope == "session":
        # A switch of a deleted session can be turned off, but not on: there is nothing to hold.
        await (find_living if on else find)(parts, SessionRef(workspace, name))


def _row(switch: Switch) -> KillSwitch:
    return KillSwitch(
        scope=switch.scope,
        name=switch.name if switch.scope in {"session", "agent"} else None,
        on=switch.on,
        by=switch.by,
        at=iso(switch.at_ms),
        reason=switch.reason,
        sequence=switch.sequence,
    )
