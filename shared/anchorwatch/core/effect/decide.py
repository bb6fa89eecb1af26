"""The executor's next move on a command that was delivered to it.

A command whose claim has no outcome is never simply run again. Its effect class decides what may be done, and only after the
claim's owner is proved dead: acks prove nothing, and a slow owner is not a dead one (INV-204).

The order matters: claim first (fenced on the command's family), *then* read the anchor up to the claim's own sequence
(`after_claim`). Either the executor sees the fence and refuses, or the writer that raised the fence sees a first
claim older than the fence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from anchorwatch.core.anchor import Anchor
from anchorwatch.core.effect.state import EffectState, Owner
from anchorwatch.core.tools import EffectClass

Liveness = Literal["alive", "dead", "gone", "unknown"]
"""Liveness of a claim's owner. ``dead`` is proved; ``gone`` is silent for a lease and may only be stopped."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """It has its outcome: ack."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Not now; a later delivery handles it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Judge:
    """It is unclaimed: ask the policy, then claim and run (a read runs without a claim)."""

    claim: bool


@dataclass(frozen=True, slots=True)
class ClaimAgain:
    """Its owner is dead or gone. Claim it again, and then ``run`` with the same key, or ``reconcile``.

    ``doubt``: an owner of this command was not proved dead, and may continue; the claim records it. ``judged``: the
    policy gave its verdict before the first claim; if that claim may be lost, that is unknown.
    """

    then: Literal["run", "reconcile"]
    doubt: bool = False
    judged: bool = True


@dataclass(frozen=True, slots=True)
class MarkUnknown:
    """It may have happened, and there is no proof either way: a person decides."""

    reason: str


Action = Nothing | Wait | Judge | ClaimAgain | MarkUnknown


def next_action(state: EffectState, effect_class: EffectClass, me: Owner, owner_liveness: Liveness) -> Action:
    """The executor's next move. ``owner_liveness``: of the current claim's owner (ignored without a claim)."""
    if state.outcome is not None:
        return Nothing()
    if effect_class is EffectClass.READ:
        return Judge(claim=False)
    if state.claim is None:
        # A claim that was made after an owner's death and given back proves nothing about that owner.
        if not state.first_claim:
            return Judge(claim=True)
        found = _after_death(effect_class, "its owner", doubt=state.doubt)
        return replace(found, judged=False) if state.lost_claim and isinstance(found, ClaimAgain) else found
    if state.claim.owner == me:
        return Wait("this process is running it")
    if owner_liveness not in ("dead", "gone"):
        return Wait(f"{state.claim.owner.instance} holds the claim and is {owner_liveness}")
    doubt = state.doubt or owner_liveness == "gone"
    return _after_death(effect_class, state.claim.owner.instance, doubt=doubt)


def _after_death(effect_class: EffectClass, owner: str, *, doubt: bool) -> ClaimAgain | MarkUnknown:
    match effect_class:
        case EffectClass.IDEMPOTENT:
            return ClaimAgain(then="run", doubt=doubt)
        case EffectClass.RECONCILABLE:
            return ClaimAgain(then="reconcile", doubt=doubt)
        case _:
            return MarkUnknown(f"{owner} died while it ran; it may have happened")


@dataclass(frozen=True, slots=True)
class Proceed:
    """The fence is below the command: run it."""


@dataclass(frozen=True, slots=True)
class FencedOff:
    """The command's run has ended. ``first``: under a first claim it can be refused; under a later one it may have happened."""

    first: bool


@dataclass(frozen=True, slots=True)
class Deferred:
    """The session is paused, quarantined or stopped by a kill switch: release the claim and wait."""

    reason: str


def after_claim(state: EffectState, run: int, anchor: Anchor) -> Proceed | FencedOff | Deferred:
    """The consequence of the anchor, read up to the claim's own sequence, for the command that was just claimed."""
    if anchor.status == "quarantined":
        # Its fence may be higher than necessary; the repair decides about the command.
        return Deferred("the session is quarantined")
    if run < anchor.fence.run or anchor.status == "deleted":
        return FencedOff(first=state.claim is None or state.claim.sequence == state.first_claim)
    if anchor.status == "paused":
        return Deferred("the session is paused")
    return Proceed()


def after_reconcile(
    found: Literal["done", "not_done", "unknown"], *, rejects_used_key: bool, settled: bool, doubt: bool
) -> Literal["record", "run", "wait", "unknown"]:
    """The consequence of the provider's answer, requested under a claim that replaced another.

    ``settled``: the tool's settle time has passed since the former claim; a request in flight
    would have arrived. ``doubt``: a former owner may only be stopped and may still send its request. "Not
    done" leads to a second run only if the provider rejects a used key, or after the settle time without
    doubt (INV-302).
    """
    if found == "done":
        return "record"
    if found == "unknown":
        return "unknown"
    if rejects_used_key:
        return "run"
    if not settled:
        return "wait"
    return "unknown" if doubt else "run"
