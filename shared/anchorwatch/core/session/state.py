"""The state of a session. It is derived from the journal and stored only in snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from anchorwatch.core.anchor import Anchor, RunOutcome
from anchorwatch.core.names import CallId
from anchorwatch.core.session.critical import Labelled
from anchorwatch.core.session.spending import Spent

P0, P1, P2 = 0, 1, 2
Priority = Literal[0, 1, 2]
InputKind = Literal["event", "message", "trigger", "tick", "canary", "resolution"]
CallState = Literal[
    "pending", "succeeded", "failed", "refused", "unknown", "resolved", "rejected", "withdrawn"
]
"""``rejected``: never dispatched (its arguments were invalid). ``withdrawn``: an ephemeral result from before a resume."""


@dataclass(frozen=True, slots=True)
class Input:
    """An accepted input. ``at_ms``: when the journal accepted it; ``sequence``: its receipt.

    ``settled``: a disposition that it had from the start, with ``why``: no turn consumes it. Empty: a turn will.
    ``by``: its author, if that is a person.
    """

    sequence: int
    input_id: str
    kind: InputKind
    priority: Priority
    at_ms: int
    text: str = ""
    source: str = ""
    type: str = ""
    expires_at_ms: int | None = None
    settled: Literal["", "coalesced", "expired", "refused"] = ""
    why: str = ""
    by: str = ""

    @property
    def family(self) -> str:
        """The family of the wake-up: the input's kind, source and type."""
        return "/".join(part for part in (self.kind, self.source, self.type) if part)


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of a step with its result. ``n`` counts from 1; ``label`` is the model's own id, never an identity.

    ``verb``: its intent, if that is not the tool's name. ``mutating``: false for a read.
    ``sequence``: of its command in the journal; 0 for a rejected call.
    """

    n: int
    tool: str
    args: Mapping[str, Any]
    label: str = ""
    pool: str = "default"
    resource: str = ""
    state: CallState = "pending"
    text: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    durable: bool = True
    verb: str = ""
    mutating: bool = True
    sequence: int = 0

    @property
    def intent(self) -> tuple[str, str]:
        """Verb and resource."""
        return self.verb or self.tool, self.resource


@dataclass(frozen=True, slots=True)
class SeenObservation:
    """The observation that the model saw at a step. ``facts``: by name; None is unknown."""

    digest: str
    at_ms: int
    text: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """One model call and its tool calls. ``joined``: messages that the model saw here for the first time."""

    number: int
    text: str
    calls: tuple[Call, ...]
    observation: SeenObservation | None = None
    joined: tuple[Input, ...] = ()

    @property
    def settled(self) -> bool:
        return all(call.state != "pending" for call in self.calls)


@dataclass(frozen=True, slots=True)
class Turn:
    """The running turn. ``held_since``: sequence of its latest acquire or takeover; ``origin``: digest of its acquire.

    ``steered``: messages to this turn that its model has not seen yet. ``refused``: inputs refused since the previous turn,
    because too many were pending. ``away``: as of `StepHead`, of the last step that rules decided.
    """

    run_id: int
    turn_id: str
    started_at_ms: int
    held_since: int
    woken_by: int
    inputs: tuple[Input, ...]
    steps: tuple[Step, ...] = ()
    origin: str = ""
    steered: tuple[Input, ...] = ()
    refused: int = 0
    away: tuple[tuple[str, str], ...] = ()

    @property
    def joined(self) -> tuple[int, ...]:
        """The sequences of the inputs that joined it after its start."""
        return tuple(each.sequence for step in self.steps for each in step.joined)

    @property
    def settled(self) -> bool:
        """Whether every command so far has its outcome, so that the next step may start."""
        return not self.steps or self.steps[-1].settled


@dataclass(frozen=True, slots=True)
class PastTurn:
    """A past turn, as the conversation shows it. ``skipped`` inputs are counted and not shown.

    ``tally``: if some were skipped, the number of inputs of each kind (`wakes.tally`); ``refused`` and ``held_since``: as in
    `Turn`.
    """

    run_id: int
    outcome: RunOutcome
    reason: str
    inputs: tuple[Input, ...]
    skipped: int
    steps: tuple[Step, ...]
    tally: tuple[tuple[str, int], ...] = ()
    refused: int = 0
    held_since: int = 0


@dataclass(frozen=True, slots=True)
class Unsettled:
    """A mutating command of any run without a definite outcome: none yet, or `unknown` until it is resolved."""

    call: CallId
    pool: str
    resource: str


@dataclass(frozen=True, slots=True)
class Summary:
    """Replaces the turns up to run ``through_run``, ``turns`` of them; ``source``: its author."""

    through_run: int
    turns: int
    text: str
    source: Literal["model", "records"] = "records"


@dataclass(frozen=True, slots=True)
class Archive:
    """The restorable part of the conversation that the reset at journal sequence ``reset`` archived."""

    reset: int
    summary: Summary | None
    turns: tuple[PastTurn, ...]


class SessionState(NamedTuple):
    """A session as of ``read_through`` (every record up to that journal sequence is in).

    ``head`` and ``head_digest``: the last planner record, on which the next one is fenced and chained.
    ``told_sequence`` and ``told_digest``: the anchor record that a prompt shows: the newest that is neither
    an acquire nor a takeover. ``pending``: accepted inputs without a disposition. ``summary`` replaces the turns
    before ``history``. ``archives``: conversations archived by resets, the latest last; together with ``history`` they
    share the bounds of one history. ``critical``: every labelled line of people, verbatim, until a person withdraws it.
    ``snapshot_age``: planner records since the last snapshot.
    ``unsettled``: in the journal's order; later commands on a resource wait for these.
    ``refused``: inputs refused since the start of the last turn.
    ``passed_over``: sequences of unreadable records that a repair has accepted.

    A named tuple, because each record changes two or three of its many fields, which costs a quarter of the same change of
    a frozen dataclass (ADR 13).
    """

    anchor: Anchor | None = None
    anchor_sequence: int = 0
    told: Anchor | None = None
    told_sequence: int = 0
    told_digest: str = ""
    head: int = 0
    head_digest: str = ""
    read_through: int = 0
    pending: tuple[Input, ...] = ()
    turn: Turn | None = None
    summary: Summary | None = None
    history: tuple[PastTurn, ...] = ()
    archives: tuple[Archive, ...] = ()
    critical: tuple[Labelled, ...] = ()
    unsettled: tuple[Unsettled, ...] = ()
    spent: Spent = Spent()
    refused: int = 0
    snapshot_sequence: int = 0
    snapshot_age: int = 0
    passed_over: tuple[int, ...] = ()

    def is_held_by(self, execution_id: str) -> bool:
        """Whether a turn is running and that process holds it."""
        anchor = self.anchor
        return (
            self.turn is not None
            and anchor is not None
            and anchor.status == "active"
            and anchor.execution_id == execution_id
        )

    def takes(self, sequence: int) -> bool:
        """Whether an input at ``sequence`` is still without a disposition, by the anchor and the running turn."""
        anchor, turn = self.anchor, self.turn
        if anchor is None:
            return True
        if anchor.status == "deleted":
            # The deletion refuses every input that no turn consumed, and every later one.
            return False
        pinned = anchor.turn.inputs_through if anchor.turn else 0
        if sequence <= max(anchor.inputs_through, pinned) or sequence in anchor.inputs_joined:
            return False
        return turn is None or sequence not in turn.joined

    def reading_through(self, sequence: int) -> SessionState:
        """The same state, known to be complete up to ``sequence``."""
        return self if sequence <= self.read_through else self._replace(read_through=sequence)
