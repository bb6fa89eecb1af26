"""Settling by hand: only what is unknown, and once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from anchorwatch.core.effect import EffectState
from anchorwatch.core.effect.decide import Nothing, next_action
from anchorwatch.core.effect.resolve import decide_resolve
from anchorwatch.core.effect.state import (
    Claimed,
    Outcome,
    OutcomeState,
    Owner,
    Resolution,
    apply_effect,
    fold_effect,
)
from anchorwatch.core.errors import Conflict, IdempotencyConflict
from anchorwatch.core.names import CallId
from anchorwatch.core.tools import EffectClass

CALL = CallId(1, 1, 1)
ONE, GATEWAY = Owner("executor-1", "i1"), Owner("gateway-1", "i1")
ASKED = Resolution("not_done", "looked at the console", "key-1", "body-1", 1_773_773_803_000)


def ended(state: OutcomeState) -> EffectState:
    outcome = Outcome(CALL, "stop", state, "?", {}, resource="w-1", effect_key="k", claim_sequence=5)
    return fold_effect([(5, 0, Claimed(ONE, 1, "k")), (6, 0, outcome)])


def settle(state: EffectState, asked: Resolution = ASKED, by: str = "ada") -> EffectState:
    for sequence, event in enumerate(decide_resolve("s/1.1.1", state, asked, by, GATEWAY), state.head + 1):
        state = apply_effect(state, sequence, 9, event)
    return state


def test_unknown_effect_is_settled_under_a_replacing_claim() -> None:
    settled = settle(ended("unknown"))
    assert settled.claim is not None
    assert (settled.claim.owner, settled.claim.effect_key, settled.first_claim) == (GATEWAY, "k", 5)
    assert settled.outcome is not None
    assert (settled.outcome.state, settled.outcome.by, settled.outcome.resolution) == (
        "resolved",
        "ada",
        ASKED,
    )
    assert settled.outcome.text == "it was not done, says ada: looked at the console"
    assert (settled.outcome.resource, settled.outcome.effect_key) == ("w-1", "k")
    for effect_class in EffectClass:
        assert next_action(settled, effect_class, ONE, "dead") == Nothing()


@pytest.mark.parametrize("state", ["succeeded", "failed", "refused"])
def test_known_outcome_is_not_settled(state: OutcomeState) -> None:
    with pytest.raises(Conflict, match=f"s/1.1.1 is {state}, which is certain"):
        settle(ended(state))


def test_effect_without_an_outcome_is_awaited() -> None:
    with pytest.raises(Conflict, match="no outcome yet"):
        settle(fold_effect([(5, 0, Claimed(ONE, 1, "k"))]))


def test_same_request_again_changes_nothing() -> None:
    settled = settle(ended("unknown"))
    assert settle(settled) == settled


def test_second_request_learns_who_settled_it_when_and_how() -> None:
    settled = settle(ended("unknown"))
    with pytest.raises(
        Conflict, match=r"settled at 2026-03-17T18:56:43.*: it was not done, says ada: looked at the console"
    ):
        settle(settled, replace(ASKED, key="key-2"), by="bob")


def test_same_key_with_another_body_is_a_conflict_of_its_own() -> None:
    with pytest.raises(IdempotencyConflict) as raised:
        settle(settle(ended("unknown")), replace(ASKED, verdict="done", body_sha256="body-2"))
    assert raised.value.first_body_sha256 == "body-1"
