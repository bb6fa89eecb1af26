"""What is open on a resource, and what it keeps from running."""

from __future__ import annotations

import pytest
from anchorwatch.core.effect.blocking import (
    Blocked,
    Clear,
    Waits,
    before_claim,
    before_first_claim,
    under_claim,
)
from anchorwatch.core.effect.state import (
    Claimed,
    EffectState,
    Outcome,
    OutcomeState,
    Owner,
    Released,
    fold_effect,
)
from anchorwatch.core.names import CallId

OWNER, OTHER = Owner("executor-1", "i1"), Owner("executor-2", "i1")
CALL = CallId(1, 1, 1)


def claimed(at: int) -> EffectState:
    return fold_effect([(at, 0, Claimed(OWNER, 1, "key"))])


def ended(state: OutcomeState, at: int) -> EffectState:
    return fold_effect([(at - 1, 0, Claimed(OWNER, 1, "key")), (at, 0, Outcome(CALL, "stop", state, "", {}))])


@pytest.mark.parametrize("state", ["succeeded", "failed", "refused", "resolved"])
def test_definite_outcome_releases_the_next_command(state: OutcomeState) -> None:
    assert before_claim([("s/1.1.1", ended(state, 9))]) == Clear()
    assert under_claim(claimed(20), [("t/1.1.1", ended(state, 9))]) == Clear()


def test_open_effect_is_awaited_and_an_unknown_one_blocks() -> None:
    assert before_claim([("s/1.1.1", claimed(5)), ("s/1.1.2", ended("unknown", 9))]) == Waits("s/1.1.1")
    assert before_claim([("s/1.1.1", ended("unknown", 9)), ("s/1.1.2", claimed(5))]) == Blocked(
        "s/1.1.1", "stop"
    )


def test_foreign_unknown_effect_blocks_later_claims() -> None:
    assert under_claim(claimed(20), [("t/1.1.1", ended("unknown", 19))]) == Blocked("t/1.1.1", "stop")


def test_claim_from_before_the_block_is_not_blocked() -> None:
    assert under_claim(claimed(20), [("t/1.1.1", ended("unknown", 21))]) == Clear()


def test_claim_replacing_one_from_before_the_block_is_settled() -> None:
    began = fold_effect(
        [(5, 0, Claimed(OWNER, 1, "key")), (30, 0, Claimed(Owner("executor-2", "i1"), 2, "key"))]
    )
    assert under_claim(began, [("t/1.1.1", ended("unknown", 20))]) == Clear()


def test_running_effect_of_another_session_blocks_nothing() -> None:
    assert under_claim(claimed(20), [("t/1.1.1", claimed(10))]) == Clear()


def test_foreign_effect_without_an_outcome_is_awaited() -> None:
    about_to_be_claimed = EffectState()
    given_back = fold_effect([(5, 0, Claimed(OWNER, 1, "key")), (6, 0, Released(OWNER, "paused"))])
    begun_by_the_dead = fold_effect(
        [
            (5, 0, Claimed(OWNER, 1, "key")),
            (9, 0, Claimed(OTHER, 2, "key")),
            (10, 0, Released(OTHER, "paused")),
        ]
    )
    for attempt, state in (
        (1, claimed(5)),
        (1, about_to_be_claimed),
        (1, begun_by_the_dead),
        (2, given_back),
    ):
        assert before_first_claim([("t/1.1.1", attempt, state)]) == Waits("t/1.1.1")


def test_foreign_effect_that_is_not_running_is_not_awaited() -> None:
    given_back = fold_effect([(5, 0, Claimed(OWNER, 1, "key")), (6, 0, Released(OWNER, "paused"))])
    for state in (given_back, ended("succeeded", 9), ended("unknown", 9)):
        assert before_first_claim([("t/1.1.1", 1, state)]) == Clear()


def test_refusal_names_the_effect_and_the_way_out() -> None:
    said = Blocked("fleet/15.2.1", "stop").say("instance/w-3")
    assert "instance/w-3 is blocked: the outcome of fleet/15.2.1 (stop) is unknown" in said
    assert "anchorwatch effects resolve fleet/15.2.1 done|not-done" in said
