"""Settling an effect that is `unknown`: a person found out what became of it."""

from __future__ import annotations

import secrets
from typing import Any

from anchorwatch.codec import canonical_json, sha256_hex
from anchorwatch.core.effect import EffectState
from anchorwatch.core.effect.resolve import decide_resolve
from anchorwatch.core.effect.state import Owner, Resolution
from anchorwatch.core.errors import Fenced, NotFound
from anchorwatch.core.names import CallId, SessionRef, parse_call
from anchorwatch.core.times import iso
from anchorwatch.edges import Edge, reached
from anchorwatch.journal.effects import EffectJournal

from anchorwatch_gateway.bodies import VERDICTS, ResolveEffect
from anchorwatch_gateway.caller import by
from anchorwatch_gateway.parts import Parts
from anchorwatch_gateway.replies import Settled

RACES_MAX = 5
_KEY_CHARS = 32


async def resolve(parts: Parts, workspace: str, wanted: ResolveEffect, key: str | None, body: Any) -> Settled:  # noqa: ANN401 - JSON
    """Settle it, or find that this very request has settled it before. ``body``: what the key is bound to.

    Raises:
        BadInput: ``call`` is no call id. NotFound: nothing is known of it. Conflict: it is not `unknown`, or was settled by
            another request. IdempotencyConflict, Unavailable, Damaged.
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
    effects = EffectJournal(parts.bus, parts.committer, parts.writer)
    state, replayed = await _settle(parts, effects, ref, call, asked)
    parts.seen.note(state.head)
    done = state.outcome
    assert done is not None and done.resolution is not None  # noqa: S101, PT018 - just written, or just read
    return Settled(
        call=wanted.call,
        session=session,
        tool=done.tool,
        resource=done.resource,
        verdict=wanted.verdict,
        note=wanted.note,
        by=done.by,
        at=iso(done.resolution.at_ms),
        sequence=state.outcome_sequence,
        replayed=replayed,
        idempotency_key=key,
    )


async def _settle(
    parts: Parts, effects: EffectJournal, ref: SessionRef, call: CallId, asked: Resolution
) -> tuple[EffectState, bool]:
    """The effect with its outcome, and whether this request had settled it before."""
    newest = (await parts.bus.stream_state(parts.committer.stream)).last_sequence
    pool = await effects.find_pool(ref, call, newest)
    if pool is None:
        raise NotFound(
            f"nothing is known of {ref.session}/{call} yet",
            hint="`anchorwatch effects --state unknown` lists what can be settled",
        )
    name = f"{ref.session}/{call}"
    instance, _, incarnation = parts.writer.rpartition(":")
    for _ in range(RACES_MAX):
        state = await effects.look(ref, pool, call, newest)
        events = decide_resolve(name, state, asked, by(), Owner(instance, incarnation))
        if not events:
            return state, True
        try:
            reached(Edge.GATEWAY_RESOLVE_BEFORE)
            state = await effects.append_all(
                ref, pool, call, state, events, asked.at_ms, parts.commit_deadline_s
            )
            reached(Edge.GATEWAY_RESOLVE_AFTER)
            return state, False
        except Fenced:
            # Somebody else settled it, or a late executor wrote: look again.
            newest = (await parts.bus.stream_state(parts.committer.stream)).last_sequence
    raise Fenced(f"{name} is being written by others", hint="try again")
