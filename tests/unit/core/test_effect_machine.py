"""The effect machine: what an executor may conclude from what is recorded, for each effect class and moment of death."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
from anchorwatch.core.anchor import Anchor, Fence, Status
from anchorwatch.core.effect import EffectState, fold_effect, next_action
from anchorwatch.core.effect.decide import (
    ClaimAgain,
    Deferred,
    FencedOff,
    Judge,
    Liveness,
    MarkUnknown,
    Nothing,
    Proceed,
    Wait,
    after_claim,
    after_reconcile,
)
from anchorwatch.core.effect.state import Claimed, EffectEvent, Outcome, Owner, Released, with_holes
from anchorwatch.core.names import CallId
from anchorwatch.core.tools import EffectClass

ME = Owner("executor-1", "now")
FORMER_SELF = Owner("executor-1", "before")
OTHER = Owner("executor-2", "x")
ANCHOR = Anchor(workspace="default", session="fleet", agent="keeper@1")
DONE = Outcome(CallId(1, 1, 1), "launch", "succeeded", "ok", {})


def recorded(*events: EffectEvent) -> EffectState:
    return fold_effect((sequence, sequence * 10, event) for sequence, event in enumerate(events, 5))


def claim(owner: Owner, attempt: int = 1) -> Claimed:
    return Claimed(owner, attempt, "key")


def test_command_with_an_outcome_is_not_run_again() -> None:
    for effect_class in EffectClass:
        assert next_action(recorded(claim(OTHER), DONE), effect_class, ME, "dead") == Nothing()


def test_unclaimed_command_is_judged_and_a_read_needs_no_claim() -> None:
    assert next_action(EffectState(), EffectClass.READ, ME, "unknown") == Judge(claim=False)
    assert next_action(EffectState(), EffectClass.IRREVERSIBLE, ME, "unknown") == Judge(claim=True)


@pytest.mark.parametrize("liveness", ["alive", "unknown"])
@pytest.mark.parametrize(
    "effect_class", [EffectClass.IDEMPOTENT, EffectClass.RECONCILABLE, EffectClass.IRREVERSIBLE]
)
def test_slow_owner_is_never_replaced(effect_class: EffectClass, liveness: Liveness) -> None:
    assert isinstance(next_action(recorded(claim(OTHER)), effect_class, ME, liveness), Wait)


def test_running_command_is_not_run_again_by_the_same_process() -> None:
    assert isinstance(next_action(recorded(claim(ME)), EffectClass.IDEMPOTENT, ME, "dead"), Wait)


@pytest.mark.parametrize("owner", [FORMER_SELF, OTHER])
def test_dead_owner_claim_is_replaced_as_its_class_allows(owner: Owner) -> None:
    state = recorded(claim(owner))
    assert next_action(state, EffectClass.IDEMPOTENT, ME, "dead") == ClaimAgain(then="run")
    assert next_action(state, EffectClass.RECONCILABLE, ME, "dead") == ClaimAgain(then="reconcile")
    assert isinstance(next_action(state, EffectClass.IRREVERSIBLE, ME, "dead"), MarkUnknown)
    assert next_action(state, EffectClass.READ, ME, "dead") == Judge(claim=False)


def test_own_name_claim_is_of_a_former_self_only_where_proved() -> None:
    held = recorded(claim(FORMER_SELF))
    assert next_action(held, EffectClass.IDEMPOTENT, ME, "dead") == ClaimAgain(then="run")
    for unproved in ("alive", "unknown"):
        assert isinstance(next_action(held, EffectClass.IDEMPOTENT, ME, unproved), Wait)


def test_returned_claim_counts_for_nothing() -> None:
    state = recorded(claim(OTHER), Released(OTHER, "paused"))
    assert next_action(state, EffectClass.IRREVERSIBLE, ME, "dead") == Judge(claim=True)
    again = recorded(claim(OTHER), Released(OTHER, "paused"), claim(ME, 2))
    assert again.first_claim == 7, "the claim before it never ran"
    assert after_claim(again, 3, replace(ANCHOR, fence=Fence(run=4))) == FencedOff(first=True)


def test_returned_second_claim_leaves_the_first_request_sent() -> None:
    state = recorded(claim(OTHER), claim(ME, 2), Released(ME, "paused"))
    assert next_action(state, EffectClass.RECONCILABLE, ME, "unknown") == ClaimAgain(then="reconcile")
    assert next_action(state, EffectClass.IDEMPOTENT, ME, "unknown") == ClaimAgain(then="run")
    assert isinstance(next_action(state, EffectClass.IRREVERSIBLE, ME, "unknown"), MarkUnknown)


def test_refusal_requires_a_first_claim() -> None:
    fenced = replace(ANCHOR, fence=Fence(run=4))
    assert after_claim(recorded(claim(ME)), 3, fenced) == FencedOff(first=True)
    assert after_claim(recorded(claim(OTHER), claim(ME, 2)), 3, fenced) == FencedOff(first=False)


def test_command_is_fenced_exactly_when_its_run_is_below_fence() -> None:
    state = recorded(claim(ME))
    fenced = replace(ANCHOR, fence=Fence(run=4), status="active")
    assert isinstance(after_claim(state, 3, fenced), FencedOff)
    assert after_claim(state, 4, fenced) == Proceed()


@pytest.mark.parametrize("status", ["paused", "quarantined"])
def test_paused_session_s_commands_wait(status: Status) -> None:
    assert isinstance(after_claim(recorded(claim(ME)), 1, replace(ANCHOR, status=status)), Deferred)


@pytest.mark.parametrize(
    ("found", "rejects", "settled", "doubt", "then"),
    [
        ("done", False, False, True, "record"),
        ("unknown", True, True, False, "unknown"),
        ("not_done", True, False, True, "run"),
        ("not_done", False, True, False, "run"),
        ("not_done", False, False, False, "wait"),
        ("not_done", False, False, True, "wait"),
        ("not_done", False, True, True, "unknown"),
    ],
)
def test_not_done_allows_a_second_run_only_if_none_in_flight(
    found: Literal["done", "not_done"], *, rejects: bool, settled: bool, doubt: bool, then: str
) -> None:
    assert after_reconcile(found, rejects_used_key=rejects, settled=settled, doubt=doubt) == then


def test_silent_owner_leaves_a_doubt_that_no_later_death_removes() -> None:
    gone = next_action(recorded(claim(OTHER)), EffectClass.RECONCILABLE, ME, "gone")
    assert gone == ClaimAgain(then="reconcile", doubt=True)
    taken_up = recorded(claim(OTHER), Claimed(Owner("executor-3", "y"), 2, "key", doubt=True))
    proved = next_action(taken_up, EffectClass.RECONCILABLE, ME, "dead")
    assert proved == ClaimAgain(then="reconcile", doubt=True)


def test_lost_record_may_have_been_a_first_claim_or_a_takeover() -> None:
    state = recorded(claim(OTHER))
    first = state.first_claim
    before = with_holes(state, 2, [(1, 3), (9, 9)])
    assert (before.first_claim, before.lost_claim, before.doubt) == (3, 3, True)
    behind = with_holes(state, 2, [(1, 1), (7, 8)])
    assert (behind.first_claim, behind.lost_claim, behind.doubt) == (first, 0, True)
    again = ClaimAgain(then="reconcile", doubt=True)
    assert next_action(behind, EffectClass.RECONCILABLE, ME, "dead") == again
    assert with_holes(state, 2, [(1, 2)]) == state, "what was lost before it was decided was none of its"
    ended = recorded(claim(OTHER), DONE)
    assert with_holes(ended, 2, [(3, 3)]) == ended
