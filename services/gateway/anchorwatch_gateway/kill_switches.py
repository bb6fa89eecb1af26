"""Kill switches: who turned them, and whether they are on."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Sequence
from typing import Any

from anchorwatch.codec import canonical_json, sha256_hex
from anchorwatch.core.errors import AnchorWatchError, BadInput
from anchorwatch.core.names import SessionRef
from anchorwatch.core.times import iso
from anchorwatch.edges import Edge, reached
from anchorwatch.journal.inputs import input_id
from anchorwatch.journal.orders import Asked
from anchorwatch.journal.switches import WHOLE, Scope, Switch, subjects_of
from anchorwatch.service.agents import subscribed
from anchorwatch.topology.subjects import SWITCH

from anchorwatch_gateway.bodies import Kill
from anchorwatch_gateway.caller import by
from anchorwatch_gateway.parts import Parts
from anchorwatch_gateway.sessions import find, find_living

SHARD = "0"
SESSIONS_LOOKED_AT_MAX = 100
SUBJECTS_MAX = 1_000


async def listed(parts: Parts, workspace: str) -> list[dict[str, Any]]:
    """Every switch of the workspace that was ever turned.

    Raises:
        Unavailable, Damaged.
    """
    return [_show(each) for each in await parts.switches.all(workspace)]


async def over(parts: Parts, ref: SessionRef, agent: str) -> list[dict[str, Any]] | None:
    """Those that hold a session of ``agent`` now; None where that cannot be seen: what was accepted is accepted all the same."""
    return await _shown(parts.switches.on_over(ref, agent))


async def over_event(parts: Parts, workspace: str, event: str) -> list[dict[str, Any]] | None:
    """Those that hold a session which an event of this name goes to, and the workspace's. None as for `over`.

    Of very many sessions, the first ones are looked at.
    """
    return await _shown(_over_event(parts, workspace, event))


async def _over_event(parts: Parts, workspace: str, event: str) -> list[Switch]:
    whole = SWITCH.at(shard=SHARD, workspace=workspace, scope="workspace", name=WHOLE)
    subjects = {whole: None}
    for spec, sessions in await parts.agents.subscribers(workspace):
        if subscribed(spec, event):
            for session in sessions[:SESSIONS_LOOKED_AT_MAX]:
                subjects |= dict.fromkeys(subjects_of(SessionRef(workspace, session), spec.name))
    return await parts.switches.on_among(list(subjects)[:SUBJECTS_MAX])


async def _shown(found: Awaitable[Sequence[Switch]]) -> list[dict[str, Any]] | None:
    try:
        return [_show(each) for each in await found]
    except AnchorWatchError:
        return None


async def turn(
    parts: Parts, workspace: str, wish: Kill, key: str | None, body: object
) -> tuple[dict[str, Any], str]:
    """Turn a switch; returns (how it stands, the request's key).

    Raises:
        BadInput: the scope needs a name, or has none. NotFound: there is no such session or agent. SessionDeleted.
        Refused: it is so already. IdempotencyConflict, Fenced, Unavailable, Damaged.
    """
    key = key or secrets.token_urlsafe(18)
    control_id = input_id("c", workspace, "kill-switch", key)
    asked = Asked(control_id, by(), sha256_hex(canonical_json(body)))
    told, joined = await parts.under_way.share(
        (control_id, asked.body_sha256), lambda: _turn(parts, workspace, wish, asked)
    )
    return {**told, "replayed": told["replayed"] or joined, "idempotency_key": key}, key


async def _turn(parts: Parts, workspace: str, wish: Kill, asked: Asked) -> dict[str, Any]:
    name = _name(wish)
    if not await parts.switches.was_turned(workspace, asked):
        await _check_there(parts, workspace, wish.scope, name, on=wish.on)
    wanted = Switch(workspace, wish.scope, name, wish.on, asked.by, parts.clock.now_ms(), wish.reason)
    reached(Edge.GATEWAY_SWITCH_BEFORE)
    switch, replayed = await parts.switches.turn(wanted, asked, deadline_s=parts.commit_deadline_s)
    reached(Edge.GATEWAY_SWITCH_AFTER)
    return {**_show(switch), "replayed": replayed}


def _name(wish: Kill) -> str:
    if (wish.name is None) != (wish.scope == "workspace"):
        raise BadInput(
            f"the kill switch of {'a workspace has no' if wish.name else f'a {wish.scope} needs a'} name",
            hint="name the session or the agent; the workspace is the request's",
        )
    return WHOLE if wish.name is None else wish.name


async def _check_there(parts: Parts, workspace: str, scope: Scope, name: str, *, on: bool) -> None:
    if scope == "agent":
        await parts.agents.get(workspace, name)
    elif scope == "session":
        # One that was deleted has nothing to hold; a switch that was on before is turned off all the same.
        await (find_living if on else find)(parts, SessionRef(workspace, name))


def _show(switch: Switch) -> dict[str, Any]:
    return {
        "scope": switch.scope,
        "name": switch.name if switch.scope in ("session", "agent") else None,
        "on": switch.on,
        "by": switch.by,
        "at": iso(switch.at_ms),
        "reason": switch.reason,
        "sequence": switch.sequence,
    }
