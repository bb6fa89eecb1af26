"""What a run of the model may do: who takes part, what may go wrong and how often, and which cures are there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from anchorwatch.core.tools import EffectClass


class Faults(NamedTuple):
    """How often each may strike in one run. They are used up, so that a run comes to an end."""

    crashes: int = 0
    """A process dies where it stands, and its instance comes back. A write on its way may land at any later time, or never."""
    redeliveries: int = 0
    """A message in hand is delivered to another process too."""
    lost_acks: int = 0
    stale_reads: int = 0
    """A read answers as of an earlier sequence, and says so."""
    unanswered: int = 0
    """A process hears nothing of its write, gives it up and goes on; the write may land. One direction of its network is gone."""
    suspicions: int = 0
    """Somebody takes a living owner for gone: it stood still for a lease, and goes on."""
    timeouts: int = 0
    """A provider's answer does not come back. The request may arrive at any later time until it is settled."""


NO_FAULTS = Faults()


@dataclass(frozen=True)
class Cures:
    """The cures of docs/protocol.md, by its numbers. False takes one away."""

    whole_fence: bool = True
    """1: planners are fenced on all of ``p.>``, not on the anchor alone."""
    own_ids: bool = True
    """3: a claim's message id is nobody else's."""
    reach: bool = True
    """4: a read is believed only when it reaches as far as the decision depends on."""
    one_family: bool = True
    """5: claim and outcome are fenced on each other."""
    takeover_leaves_fence: bool = True
    """6."""
    control_raises_fence: bool = True
    """6."""
    read_fence: Literal["after claim", "before claim", "never"] = "after claim"
    refused_on_first_claim_only: bool = True
    """7."""
    keeps_doubt: bool = True
    """8: what a silent owner may do yet is not done by another."""
    waits_to_settle: bool = True
    """8."""
    looks_again: bool = True
    """9: after the end of a turn."""
    replaced_keeps_message: bool = True
    """9: a planner that was replaced does not ack while the session is active."""
    proves_supposed: bool = True
    """9: a turn that begins on what a planner remembers is fenced on just that."""
    controls_wake: bool = True
    """9."""
    acks_last: bool = True
    """9: a message is acked after what it calls for is recorded."""
    pins_inputs: bool = True
    """10."""
    evidence_counts_once: bool = True
    """13: a planner that lost its turn does not take it back by what it had taken it by."""
    confirms_own_claim: bool = True
    """14: an executor gives a claim of its own back that it has only read."""
    late_keeps_message: bool = True
    """15: an executor that comes too late with its outcome acks only where one stands."""
    settled_before_asking: bool = True
    """16: whether all has arrived is looked at before the provider is asked, not after it answered."""
    answer_reaches: bool = True
    """17: an answer at a gate is looked for up to the message that brought it."""
    gate_is_read: bool = True
    """What needs an approval runs with one."""


@dataclass(frozen=True)
class Setup:
    """One configuration. Without a planner a turn's commands stand at the start; without an executor outcomes come by themselves.

    ``people``: what each does, once, at any time. ``gated``: how many of a step's commands, the first ones, need an approval.
    """

    planners: int = 0
    executors: int = 0
    commands: int = 1
    inputs: int = 1
    effect_class: EffectClass = EffectClass.IRREVERSIBLE
    people: tuple[str, ...] = ()
    gated: int = 0
    faults: Faults = NO_FAULTS
    cures: Cures = Cures()
    rejects_used_key: bool = False
    remembers: bool = False
    """Whether planners remember sessions at rest, and may begin turns on what they suppose of them (`Reading.supposed`)."""
    planners_return: bool = True
    """Whether a planner that died comes back, and looks at what its former self held. Where it does not, another goes on."""
