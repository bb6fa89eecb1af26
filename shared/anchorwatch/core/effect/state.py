"""The records of one command's effect, and the state folded from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, assert_never

from anchorwatch.core.names import CallId

OutcomeState = Literal["succeeded", "failed", "refused", "unknown", "resolved"]
Verdict = Literal["done", "not_done"]


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that holds a claim. A restarted instance has another incarnation."""

    instance: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class Claimed:
    """``claim``: this process is about to run the command. ``attempt`` counts from 1.

    ``doubt``: the previous owner was silent and not proved dead.
    """

    owner: Owner
    attempt: int
    effect_key: str
    doubt: bool = False


@dataclass(frozen=True, slots=True)
class Released:
    """``claim``: released before anything was sent, as if it had never been claimed."""

    owner: Owner
    reason: str


@dataclass(frozen=True, slots=True)
class Resolution:
    """A person's verdict and its time. ``key`` and ``body_sha256`` (digests) bind it to the request."""

    verdict: Verdict
    note: str
    key: str
    body_sha256: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """``done``: the outcome of the command.

    ``rule``: the policy rule that refused it. ``by``: who settled it, for `resolved`, and ``resolution`` how. ``error``: a stable
    code for what failed. ``claim_sequence``: the claim under which it ran (0: no claim).
    """

    call: CallId
    tool: str
    state: OutcomeState
    text: str
    data: Mapping[str, Any]
    durable: bool = True
    error: str = ""
    rule: str = ""
    by: str = ""
    resource: str = ""
    effect_key: str = ""
    claim_sequence: int = 0
    turn_id: str = ""
    resolution: Resolution | None = None


@dataclass(frozen=True, slots=True)
class GateAsked:
    """``gate``: an approval is requested. ``binding``: digest of what was shown (arguments, target, observation, generation).

    ``command``: sequence of the command's record.
    """

    rule: str
    binding: str
    expires_at_ms: int
    command: int = 0


@dataclass(frozen=True, slots=True)
class GateDecided:
    """``gate``: a person's decision, once."""

    approved: bool
    binding: str
    by: str


EffectEvent = Claimed | Released | Outcome | GateAsked | GateDecided


@dataclass(frozen=True, slots=True)
class Claim:
    """The current claim."""

    sequence: int
    at_ms: int
    owner: Owner
    attempt: int
    effect_key: str


@dataclass(frozen=True, slots=True)
class EffectState:
    """A command's effect as recorded. ``head``: last sequence of the family, on which the next write is fenced (0: nothing yet).

    ``first_claim``: sequence of the first claim that was not given back; ``attempts``: claims made, given-back
    ones too. ``doubt``: a former owner was never proved dead. ``outcome_sequence``: of the outcome.
    ``lost_claim``: sequence of a claim that the journal may have lost before every recorded one (0: none).
    """

    head: int = 0
    claim: Claim | None = None
    first_claim: int = 0
    attempts: int = 0
    doubt: bool = False
    outcome: Outcome | None = None
    outcome_sequence: int = 0
    gate: GateAsked | None = None
    approval: GateDecided | None = None
    lost_claim: int = 0

    @property
    def unknown(self) -> bool:
        """Whether its outcome is unknown and not settled."""
        return self.outcome is not None and self.outcome.state == "unknown"


def with_holes(state: EffectState, decided_at: int, holes: Iterable[tuple[int, int]]) -> EffectState:
    """The state with the ranges (first, last) that the journal has lost, in order; it was decided at ``decided_at``.

    A lost record may have been a claim, also the first one. Its owner may have run the command and is not proved dead
    (INV-906).
    """
    lost = next((max(first, decided_at + 1) for first, last in holes if last > decided_at), 0)
    if not lost or state.outcome is not None:
        return state
    if state.first_claim and state.first_claim < lost:
        return replace(state, doubt=True)
    return replace(state, first_claim=lost, doubt=True, lost_claim=lost)


def apply_effect(state: EffectState, sequence: int, at_ms: int, event: EffectEvent) -> EffectState:
    """Fold one record of the family; this never refuses."""
    if sequence <= state.head:
        return state
    state = replace(state, head=sequence)
    match event:
        case Claimed():
            claim = Claim(sequence, at_ms, event.owner, event.attempt, event.effect_key)
            first = state.first_claim or sequence
            doubt = state.doubt or event.doubt
            return replace(state, claim=claim, first_claim=first, attempts=state.attempts + 1, doubt=doubt)
        case Released():
            first = 0 if state.claim and state.claim.sequence == state.first_claim else state.first_claim
            return replace(state, claim=None, first_claim=first)
        case Outcome():
            return replace(state, outcome=event, outcome_sequence=sequence)
        case GateAsked():
            return replace(state, gate=event, approval=None)
        case GateDecided():
            return replace(state, approval=event)
        case _:
            assert_never(event)


def fold_effect(records: Iterable[tuple[int, int, EffectEvent]]) -> EffectState:
    """The state after (sequence, at_ms, event) records in sequence order."""
    state = EffectState()
    for sequence, at_ms, event in records:
        state = apply_effect(state, sequence, at_ms, event)
    return state
