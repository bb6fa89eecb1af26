"""Settles an unknown effect by hand: once, with who and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anchorwatch.core.effect.state import Claimed, EffectEvent, EffectState, Outcome, Owner, Resolution
from anchorwatch.core.errors import Conflict, IdempotencyConflict
from anchorwatch.core.times import iso

_SAID = {"done": "it was done", "not_done": "it was not done"}


def decide_resolve(
    call: str, state: EffectState, wanted: Resolution, by: str, me: Owner
) -> Sequence[EffectEvent]:
    """The events that settle an `unknown` effect; none if this request has settled it already.

    A claim replaces the current one first, so its owner can record nothing more. ``call`` names the effect for people;
    ``me`` is the process that acts for ``by``.

    Raises:
        Conflict: it is not `unknown`, or another request has settled it. IdempotencyConflict: the request's key was
            used for this effect with a different body.
    """
    outcome = state.outcome
    if outcome is None:
        raise Conflict(f"{call} has no outcome yet", hint="only an `unknown` effect can be settled; wait")
    if outcome.state == "resolved":
        return _again(call, outcome, wanted)
    if outcome.state != "unknown":
        raise Conflict(
            f"{call} is {outcome.state}, which is certain", hint="only an `unknown` effect can be settled"
        )
    settled = replace(
        outcome,
        state="resolved",
        text=_say(wanted, by),
        data={},
        error="",
        by=by,
        durable=True,
        resolution=wanted,
    )
    return [Claimed(me, state.attempts + 1, outcome.effect_key), settled]


def _again(call: str, outcome: Outcome, wanted: Resolution) -> Sequence[EffectEvent]:
    standing = outcome.resolution
    if standing is not None and standing.key == wanted.key:
        if standing.body_sha256 == wanted.body_sha256:
            return ()
        raise IdempotencyConflict(
            f"the key was used before to settle {call} with another body",
            hint="an effect is settled once",
            first_body_sha256=standing.body_sha256,
        )
    when = f" at {iso(standing.at_ms)}" if standing else ""
    raise Conflict(f"{call} was settled{when}: {outcome.text}", hint="an effect is settled once")


def _say(wanted: Resolution, by: str) -> str:
    said = f"{_SAID[wanted.verdict]}, says {by}"
    return f"{said}: {wanted.note}" if wanted.note else said
