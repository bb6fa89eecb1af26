"""The events of a session. Each is one journal record, encoded by `anchorwatch.journal`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anchorwatch.core.agents import RULES
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
    """The content of a step besides its commands; it is in the step's first record.

    ``rejected``: (n, tool, label, raw arguments, reason) of calls that were rejected and never become a command.
    ``usage``: of its model calls (`spending`). ``context``: how the request was rendered from the state
    (`anchorwatch.context.ladder`), so that it can be rendered again. ``joined``: sequences of messages since the start
    of the turn that the model saw first at this step; they join the turn.
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

    @property
    def away(self) -> tuple[tuple[str, str], ...]:
        """The language models, each with its error code, in whose place the pack's rules decided; empty if they did not."""
        if self.prompt is None or self.prompt.model != RULES:
            return ()
        in_vain = self.context.get("in_vain", ())
        pairs = in_vain if isinstance(in_vain, list | tuple) else ()
        return tuple((str(each[0]), str(each[1])) for each in pairs if len(each) > 1)


@dataclass(frozen=True, slots=True)
class InputAccepted:
    """``in``: an input was accepted."""

    input: Input


@dataclass(frozen=True, slots=True)
class AnchorChanged:
    """``p.anchor``: the whole new anchor, why it changed, and (at the end of a turn) its last step.

    ``by``: who changed it. ``control_id``: the receipt of a person's order. ``more``: further content of the record,
    as plain data by name (docs/wire-format.md).
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

    ``effect_key`` identifies its effect to the provider.
    ``verb``: its intent, if that is not the tool's name. ``after``: the earlier commands on its
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
    """``p.log``: a step without a valid call. ``snapshot_sequence``: the last snapshot before it."""

    run: int
    head: StepHead
    snapshot_sequence: int = 0


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """``p.log``: the folded state, from which loading starts. It is complete up to ``state.read_through``."""

    state: SessionState


@dataclass(frozen=True, slots=True)
class Compacted:
    """``p.log``: ``summary`` replaces the turns up to its ``through_run``.

    ``tokens``: of the request (before, after). ``because``: why the model did not write it. ``usage``: of the model's
    summary.
    """

    summary: Summary
    tokens: tuple[int, int]
    because: str = ""
    usage: Mapping[str, Any] = field(default_factory=dict)
    snapshot_sequence: int = 0


@dataclass(frozen=True, slots=True)
class ModelRequested:
    """``p.log``: a request to a model is about to be sent; ``reserves``: its estimated usage, which counts from now on.

    ``usage``: of the answers discarded before it. ``at_ms``: the day that both count for.
    """

    run: int
    model: str
    reserves: Mapping[str, int]
    usage: Mapping[str, int]
    at_ms: int
    snapshot_sequence: int = 0


@dataclass(frozen=True, slots=True)
class OutcomeRecorded:
    """``fx.….done``: the outcome of a command."""

    call: CallId
    state: CallState
    text: str
    data: Mapping[str, Any]
    durable: bool


PlannerEvent = AnchorChanged | CommandDecided | StepDecided | SnapshotTaken | Compacted | ModelRequested
Event = InputAccepted | PlannerEvent | OutcomeRecorded
