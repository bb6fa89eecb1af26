"""Each cure of docs/protocol.md is needed: without it the same search finds how the protocol breaks."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest
from anchorwatch.core.tools import EffectClass

from tests.model.protocol import explore
from tests.model.rules import Cures, Faults, Setup

STATES_MAX = 20_000
IDEMPOTENT, RECONCILABLE = EffectClass.IDEMPOTENT, EffectClass.RECONCILABLE


class Case(NamedTuple):
    """``without`` the cure, ``setup`` breaks in the way that ``says``."""

    says: str
    without: Cures
    setup: Setup


CASES = {
    "1: planners fenced on the anchor alone": Case(
        "fork", Cures(whole_fence=False), Setup(planners=2, faults=Faults(redeliveries=1))
    ),
    "3: a message id that two claims share": Case(
        "done 2 times", Cures(own_ids=False), Setup(executors=2, faults=Faults(redeliveries=1))
    ),
    "4: a read that need not reach": Case(
        "after the fence",
        Cures(reach=False),
        Setup(executors=1, people=("cancel",), faults=Faults(stale_reads=1)),
    ),
    "5: claim and outcome fenced apart": Case(
        "two outcomes",
        Cures(one_family=False),
        Setup(executors=2, effect_class=RECONCILABLE, faults=Faults(redeliveries=1, suspicions=1)),
    ),
    "6: a takeover that raises the fence": Case(
        "refused although its run goes on",
        Cures(takeover_leaves_fence=False),
        Setup(planners=2, executors=1, faults=Faults(redeliveries=1)),
    ),
    "6: a cancel that does not": Case(
        "the canceller was told",
        Cures(control_raises_fence=False),
        Setup(executors=1, people=("cancel",)),
    ),
    "6: a reset of several commands that does not": Case(
        "the canceller was told",
        Cures(control_raises_fence=False),
        Setup(executors=2, commands=2, gated=1, people=("answer", "reset")),
    ),
    "the fence is read before the claim": Case(
        "after the fence", Cures(read_fence="before claim"), Setup(executors=1, people=("cancel",))
    ),
    "the fence is not read": Case(
        "after the fence", Cures(read_fence="never"), Setup(executors=1, people=("cancel",))
    ),
    "7: refused on a second claim": Case(
        "said to be refused, and was done",
        Cures(refused_on_first_claim_only=False),
        Setup(executors=2, effect_class=IDEMPOTENT, people=("cancel",), faults=Faults(crashes=1)),
    ),
    "8: not done, and its owner may do it yet": Case(
        "done 2 times",
        Cures(keeps_doubt=False),
        Setup(executors=2, effect_class=RECONCILABLE, faults=Faults(redeliveries=1, suspicions=1)),
    ),
    "8: not done, and its request is on its way": Case(
        "done 2 times",
        Cures(waits_to_settle=False),
        Setup(executors=2, effect_class=RECONCILABLE, faults=Faults(crashes=1)),
    ),
    "9: no look after the end of a turn": Case(
        "stuck", Cures(looks_again=False), Setup(planners=1, inputs=2)
    ),
    "9: a planner that was replaced acks": Case(
        "stuck",
        Cures(replaced_keeps_message=False),
        Setup(planners=2, planners_return=False, faults=Faults(crashes=1, redeliveries=1)),
    ),
    "9: a turn begun on what is only remembered": Case(
        "fork", Cures(proves_supposed=False), Setup(planners=1, inputs=2, people=("pause",), remembers=True)
    ),
    "9: an order that wakes nobody": Case(
        "stuck", Cures(controls_wake=False), Setup(planners=1, people=("pause",))
    ),
    "9: a planner acks before it commits": Case(
        "stuck", Cures(acks_last=False), Setup(planners=2, planners_return=False, faults=Faults(crashes=1))
    ),
    "9: an executor acks before it commits": Case(
        "stuck", Cures(acks_last=False), Setup(executors=1, faults=Faults(crashes=1))
    ),
    "10: an acquire that pins nothing": Case(
        "begins without an input", Cures(pins_inputs=False), Setup(planners=1, people=("cancel",))
    ),
    "13: a turn is taken back by what it was taken by": Case(
        "from each other for ever",
        Cures(evidence_counts_once=False),
        Setup(planners=2, faults=Faults(redeliveries=2)),
    ),
    "14: a claim of its own that was only read": Case(
        "done 2 times",
        Cures(confirms_own_claim=False),
        Setup(executors=1, faults=Faults(lost_acks=1, stale_reads=1)),
    ),
    "15: who is late with its outcome acks": Case(
        "stuck",
        Cures(late_keeps_message=False),
        Setup(executors=2, effect_class=IDEMPOTENT, faults=Faults(crashes=1, redeliveries=1, suspicions=1)),
    ),
    "16: settled is looked at after the answer": Case(
        "done 2 times",
        Cures(settled_before_asking=False),
        Setup(executors=2, effect_class=RECONCILABLE, faults=Faults(crashes=1)),
    ),
    "17: an answer at a gate, read too early": Case(
        "stuck",
        Cures(answer_reaches=False),
        Setup(executors=1, gated=1, people=("answer",), faults=Faults(stale_reads=1)),
    ),
    "a gate that is not looked at": Case(
        "without an approval", Cures(gate_is_read=False), Setup(executors=1, gated=1, people=("answer",))
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_search_finds_the_failure_when_the_cure_is_removed(name: str) -> None:
    says, without, setup = CASES[name]
    assert explore(setup, STATES_MAX).broken == "", "with it nothing breaks"
    found = explore(replace(setup, cures=without), STATES_MAX)
    print(f"{name}: {found}")
    assert says in found.broken
    assert found.trace, "how it comes to that"
