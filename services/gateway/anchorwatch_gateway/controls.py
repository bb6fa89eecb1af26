"""What people order of a session: carried out once for each key, and answered with what became of it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from anchorwatch.codec import canonical_json, sha256_hex
from anchorwatch.core.errors import NotFound
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import CHECK_IN_MS, Order, Reset
from anchorwatch.core.session.preview import confirmed, preview
from anchorwatch.core.session.transitions import ENDS_TURN
from anchorwatch.core.times import iso
from anchorwatch.edges import Edge, reached
from anchorwatch.journal.inputs import input_id
from anchorwatch.journal.orders import Asked, Done, canary, canary_id

from anchorwatch_gateway import kill_switches
from anchorwatch_gateway.caller import by
from anchorwatch_gateway.late_calls import Fate, fates
from anchorwatch_gateway.parts import Parts
from anchorwatch_gateway.replies import Control, Shown
from anchorwatch_gateway.sessions import find, find_living


@dataclass(frozen=True, slots=True)
class Request:
    """One request for an order. ``body`` is the JSON as the client sent it: with ``verb``, what the receipt is bound to."""

    ref: SessionRef
    verb: str
    key: str | None
    body: Any


@dataclass(frozen=True, slots=True)
class Given:
    """What an order is made of, beside what it says."""

    by: str
    at_ms: int
    control_id: str
    check_in_ms: int


Make = Callable[[SessionState, Given], Order]


async def order(parts: Parts, request: Request, make: Make) -> Control:
    """Carry an order out, or find that it was.

    Raises:
        NotFound, SessionDeleted, Refused and its kinds, IdempotencyConflict, Fenced, Unavailable, Damaged.
    """
    key = request.key or secrets.token_urlsafe(18)
    control_id = input_id("c", request.ref.workspace, request.ref.session, key)
    digest = sha256_hex(canonical_json({"verb": request.verb, "body": request.body}))
    asked = Asked(control_id, by(), digest)

    async def carry_out() -> Control:
        return await _reply(parts, request.ref, await _carry_out(parts, request.ref, asked, make), key)

    told, joined = await parts.under_way.share((request.ref, control_id, digest), carry_out)
    return told.model_copy(update={"replayed": True}) if joined else told


async def _carry_out(parts: Parts, ref: SessionRef, asked: Asked, make: Make) -> Done:
    given = Given(asked.by, parts.clock.now_ms(), asked.control_id, await _check_in_ms(parts, ref))
    reached(Edge.GATEWAY_CONTROL_BEFORE)
    done = await parts.orders.carry_out(
        ref,
        asked,
        lambda state: make(state, given),
        also=lambda change: canary(ref, change, parts.writer),
        deadline_s=parts.commit_deadline_s,
    )
    reached(Edge.GATEWAY_CONTROL_AFTER)
    parts.seen.note(done.sequence + 1)
    return done


def reset(confirmation: str | None, reason: str) -> Make:
    """A reset of what was shown; without a confirmation, of the session as it is."""

    def make(state: SessionState, given: Given) -> Order:
        head, through = (0, state.read_through) if confirmation is None else confirmed(state, confirmation)
        return Reset(given.by, given.at_ms, through, head, reason, given.control_id, given.check_in_ms)

    return make


async def show_reset(parts: Parts, ref: SessionRef) -> Shown:
    """What a reset would do now.

    Raises:
        NotFound, SessionDeleted, Unavailable, Damaged.
    """
    await find_living(parts, ref)
    state = await parts.journal.load(ref, await parts.journal.newest(ref))
    shown, anchor = preview(state), state.anchor
    assert anchor is not None  # noqa: S101 - it was found
    return Shown(
        session=ref.session,
        status=anchor.status,
        archived={"turns": len(shown.runs), "runs": [*shown.runs[:1], *shown.runs[1:][-1:]]},
        kept={
            "objectives": list(anchor.objectives),
            "constraints": list(anchor.constraints),
            "critical": list(state.critical),
            "facts": anchor.facts,
            "run_count": anchor.run_count,
            "run_id": anchor.run_id,
        },
        disposed={
            "count": len(shown.disposed),
            "through": shown.through,
            "inputs": [
                {"input_id": each.input_id, "kind": each.kind, "text": each.text[:200]}
                for each in shown.disposed[:100]
            ],
        },
        cancelled_turn=shown.cancelled,
        confirmation=shown.confirmation,
    )


async def _check_in_ms(parts: Parts, ref: SessionRef) -> int:
    """How long after a turn that an order ends the session looks again: its agent's heartbeat.

    Also of a deleted session: an order that was carried out before is answered, and any other is refused where it is decided.
    """
    anchor, _ = await find(parts, ref)
    try:
        agent = await parts.agents.get(ref.workspace, anchor.agent.partition("@")[0])
    except NotFound:
        return CHECK_IN_MS
    return round((agent.heartbeat_s or parts.settings.heartbeat_s) * 1000)


async def _reply(parts: Parts, ref: SessionRef, done: Done, key: str) -> Control:
    change = done.change
    ended: Sequence[Fate] = ()
    if change.kind in ENDS_TURN:
        ended = await fates(parts, ref, done)
    return Control(
        control_id=change.control_id,
        session=ref.session,
        kind=change.kind,
        sequence=done.sequence,
        at=iso(change.at_ms),
        by=change.by,
        replayed=done.replayed,
        session_status=change.anchor.status,
        # Nothing holds what is no more.
        kill_switches=[]
        if change.anchor.status == "deleted"
        else await kill_switches.over(parts, ref, change.anchor.agent),
        idempotency_key=key,
        run_id=change.anchor.run_id,
        more={name: value for name, value in change.more.items() if name != "text"},
        canary=canary_id(change) if change.kind == Kind.RESET else None,
        never_start=[fate.call for fate in ended if fate.state == "never_starts"],
        too_late=[fate.to_json() for fate in ended if fate.state == "may_have_run"],
    )
