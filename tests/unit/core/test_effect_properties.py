"""The effect machine over any history: folding refuses nothing, and what may be concluded never grows bolder with time."""

from __future__ import annotations

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
)
from anchorwatch.core.effect.state import (
    Claimed,
    EffectEvent,
    GateAsked,
    GateDecided,
    Outcome,
    Owner,
    Released,
    apply_effect,
)
from anchorwatch.core.names import CallId
from anchorwatch.core.tools import EffectClass
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.branches import reach, reaches

OWNERS = st.builds(Owner, st.sampled_from(["executor-1", "executor-2"]), st.sampled_from(["a", "b"]))
ME = Owner("executor-1", "b")
CALL = CallId(1, 1, 1)
CLASSES = st.sampled_from(list(EffectClass))
LIVENESS: st.SearchStrategy[Liveness] = st.sampled_from(["alive", "dead", "gone", "unknown"])
OUTCOMES = st.builds(
    Outcome,
    call=st.just(CALL),
    tool=st.just("launch"),
    state=st.sampled_from(["succeeded", "failed", "refused", "unknown", "resolved"]),
    text=st.just(""),
    data=st.just({}),
)
OPEN: st.SearchStrategy[EffectEvent] = (
    st.builds(Claimed, OWNERS, st.integers(1, 4), st.just("key"), st.booleans())
    | st.builds(Released, OWNERS, st.just("paused"))
    | st.builds(GateAsked, st.just("people"), st.just("b"), st.integers(0, 9))
    | st.builds(GateDecided, st.booleans(), st.just("b"), st.just("ada"))
)
ANY: st.SearchStrategy[EffectEvent] = OPEN | OUTCOMES


def numbered(events: list[EffectEvent]) -> list[tuple[int, int, EffectEvent]]:
    return [(sequence, sequence * 10, event) for sequence, event in enumerate(events, 5)]


@settings(max_examples=300, deadline=None)
@given(st.lists(ANY, max_size=12), st.integers(0, 12))
def test_events_fold_alike_in_parts_and_repeats_change_nothing(events: list[EffectEvent], cut: int) -> None:
    records = numbered(events)
    state = fold_effect(records)
    resumed = fold_effect(records[:cut])
    for record in records[max(0, cut - 2) :]:
        resumed = apply_effect(resumed, *record)
    assert resumed == state
    for record in records:
        assert apply_effect(state, *record) == state
    assert state.head == (records[-1][0] if records else 0)
    assert state.claim is None or 0 < state.first_claim <= state.claim.sequence


@reaches("read", "first claim", "Wait", "ClaimAgain", "MarkUnknown", "reconcile")
@settings(max_examples=300, deadline=None)
@given(st.lists(OPEN, max_size=12), CLASSES, LIVENESS)
def test_claimed_effect_is_never_started_as_if_unclaimed(
    events: list[EffectEvent], effect_class: EffectClass, liveness: Liveness
) -> None:
    state = fold_effect(numbered(events))
    action = next_action(state, effect_class, ME, liveness)
    if effect_class is EffectClass.READ:
        reach("read")
        assert action == Judge(claim=False)
    elif not state.first_claim:
        reach("first claim")
        assert action == Judge(claim=True)
    else:
        assert isinstance(action, Wait | ClaimAgain | MarkUnknown)
        reach(type(action).__name__)
        assert not isinstance(action, ClaimAgain) or effect_class is not EffectClass.IRREVERSIBLE
        if effect_class is EffectClass.RECONCILABLE and isinstance(action, ClaimAgain):
            reach("reconcile")
            assert action.then == "reconcile"
            assert action.doubt or not state.doubt, "a doubt that was recorded stays"


@settings(max_examples=300, deadline=None)
@given(st.lists(ANY, max_size=12), OUTCOMES, CLASSES, LIVENESS)
def test_effect_with_its_outcome_is_left_alone(
    events: list[EffectEvent], outcome: Outcome, effect_class: EffectClass, liveness: Liveness
) -> None:
    assert next_action(fold_effect(numbered([*events, outcome])), effect_class, ME, liveness) == Nothing()


@settings(max_examples=300, deadline=None)
@given(
    st.lists(OPEN, max_size=12),
    st.integers(1, 4),
    st.integers(0, 5),
    st.sampled_from(["idle", "active", "paused", "quarantined", "deleted"]),
)
def test_effect_proceeds_only_at_or_above_the_fence(
    events: list[EffectEvent], run: int, fence: int, status: Status
) -> None:
    state = fold_effect(numbered([*events, Claimed(ME, 1, "key")]))
    anchor = Anchor(workspace="w", session="s", agent="a@1", status=status, fence=Fence(fence))
    found = after_claim(state, run, anchor)
    assert isinstance(found, Proceed | FencedOff | Deferred)
    if isinstance(found, Proceed):
        assert run >= fence
        assert status in ("idle", "active")
    if isinstance(found, FencedOff):
        assert run < fence or status == "deleted"
        others = [each for each in numbered(events) if isinstance(each[2], Claimed)]
        assert not found.first or all(each[0] < state.first_claim for each in others), (
            "every claim before was given back"
        )


def test_empty_history_is_an_unclaimed_command() -> None:
    assert next_action(EffectState(), EffectClass.IRREVERSIBLE, ME, "unknown") == Judge(claim=True)
