"""What can happen to a session. Each event is one journal record; `anchorwatch.journal.mapping` gives it bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anchorwatch.core.anchor import Anchor, PromptProof
from anchorwatch.core.names import CallId
from anchorwatch.core.records import Kind
from anchorwatch.core.session.state import (
    CallState,
    Input,
    SeenObservation,
    SessionState,
    Summary,
    Unsettled,
)


@dataclass(frozen=True, slots=True)
class StepHead:
    """What a step has beside its commands; it stands in the step's first record.

    ``rejected``: (n, tool, label, raw arguments, reason) of calls that were rejected and never become a command.
    ``usage``: tokens as the endpoint reported. ``context``: how the request was made from the state
    (`anchorwatch.context.ladder`), so that it can be made again. ``joined``: sequences of what people said after the
    turn began, and the model was first shown at this step; with it they are the turn's.
    """

    step: int
    text: str
    observation: SeenObservation | None
    prompt: PromptProof | None
    rejected: tuple[tuple[int, str, str, str, str], ...] = ()
    calls: int = 0
    usage: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)
    joined: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class InputAccepted:
    """``in``: a receipt was given."""

    input: Input


@dataclass(frozen=True, slots=True)
class AnchorChanged:
    """``p.anchor``: the whole new anchor, why it changed, and (at the end of a turn) its last step.

    ``by``: who changed it. ``control_id``: the receipt of a person's order. ``more``: what else the record says of it,
    plain data by name (docs/wire-format.md).
    """

    kind: Kind
    anchor: Anchor
    at_ms: int
    reason: str = ""
    by: str = ""
    head: StepHead | None = None
    control_id: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommandDecided:
    """``p.cmd.<pool>``: a tool call, committed. It is the executor's outbox item. The first of a step carries the step's head.

    ``effect_key`` names its effect to the provider for ever.
    ``verb``: what its tool calls the intent, where that is not its own name. ``after``: the earlier commands on its
    resource that must have a definite outcome before it runs.
    """

    call: CallId
    turn_id: str
    generation: int
    agent: str
    pool: str
    tool: str
    args: Mapping[str, Any]
    resource: str
    label: str
    observation_digest: str
    observation_at_ms: int
    head: StepHead | None = None
    effect_key: str = ""
    verb: str = ""
    mutating: bool = True
    after: tuple[Unsettled, ...] = ()


@dataclass(frozen=True, slots=True)
class StepDecided:
    """``p.log``: a step none of whose calls could be dispatched. ``snapshot_sequence`` leads to the last snapshot behind it."""

    run: int
    head: StepHead
    snapshot_sequence: int = 0


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """``p.log``: the folded state, so that loading starts here. ``state.read_through`` says how far it was complete."""

    state: SessionState


@dataclass(frozen=True, slots=True)
class Compacted:
    """``p.log``: ``summary`` stands from here on for the turns up to its ``through_run``.

    ``tokens``: of the request (before, after). ``because`` says why it was not a model that wrote it.
    ``usage``: what the model's own summary cost.
    """

    summary: Summary
    tokens: tuple[int, int]
    because: str = ""
    usage: Mapping[str, Any] = field(default_factory=dict)
    snapshot_sequence: int = 0


@dataclass(frozen=True, slots=True)
class OutcomeRecorded:
    """``fx.….done``: what a command did."""

    call: CallId
    state: CallState
    text: str
    data: Mapping[str, Any]
    durable: bool


Event = (
    InputAccepted | AnchorChanged | CommandDecided | StepDecided | SnapshotTaken | Compacted | OutcomeRecorded
)
PlannerEvent = AnchorChanged | CommandDecided | StepDecided | SnapshotTaken | Compacted
