"""What a session is. All of it is derived from the journal; nothing here is written anywhere but in snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from anchorwatch.core.anchor import Anchor, RunOutcome
from anchorwatch.core.names import CallId
from anchorwatch.core.session.spending import Spent

P0, P1, P2 = 0, 1, 2
Priority = Literal[0, 1, 2]
InputKind = Literal["event", "message", "trigger", "tick", "canary", "resolution"]
CallState = Literal[
    "pending", "succeeded", "failed", "refused", "unknown", "resolved", "rejected", "withdrawn"
]
"""``rejected``: never dispatched (its arguments were unusable). ``withdrawn``: an ephemeral result from before a resume."""


@dataclass(frozen=True, slots=True)
class Input:
    """An accepted input. ``at_ms``: when the journal accepted it; ``sequence``: its receipt.

    ``settled``: the disposition that it has had from the first, with ``why``: no turn takes it. Empty: a turn will say.
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

    @property
    def family(self) -> str:
        """What counts as the same kind of wake: the input's kind, source and type."""
        return "/".join(part for part in (self.kind, self.source, self.type) if part)


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of a step and what came of it. ``n`` counts from 1; ``label`` is the model's own id, never an identity.

    ``verb``: the name of its intent, where that is not the name of the tool. ``mutating``: false of a read.
    ``sequence``: where its command is in the journal; 0 of a rejected call, and in snapshots of older releases.
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
    """What the model saw at a step. ``facts``: by name; None is unknown."""

    digest: str
    at_ms: int
    text: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """One model call and the calls that it asked for. ``joined``: what people said meanwhile, first shown to the model here."""

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

    ``steered``: what people said to this very turn, and its model was not shown yet. ``refused``: inputs that were refused
    since the turn before, since too many waited.
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

    @property
    def joined(self) -> tuple[int, ...]:
        """The sequences of what joined it after it began."""
        return tuple(each.sequence for step in self.steps for each in step.joined)

    @property
    def settled(self) -> bool:
        """Whether every command decided so far has its outcome: the model may be asked for the next step."""
        return not self.steps or self.steps[-1].settled


@dataclass(frozen=True, slots=True)
class PastTurn:
    """A turn that ended, as far as the conversation still shows it. ``skipped`` inputs are counted, not shown.

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
    """A command that changes something, of any run, without a definite outcome: none yet, or `unknown` until it is resolved."""

    call: CallId
    pool: str
    resource: str


@dataclass(frozen=True, slots=True)
class Summary:
    """What stands for the turns up to run ``through_run``, ``turns`` of them; ``source``: who wrote it."""

    through_run: int
    turns: int
    text: str
    source: Literal["model", "records"] = "records"


@dataclass(frozen=True, slots=True)
class Archive:
    """The conversation that the reset at journal sequence ``reset`` took out of sight, as far as it can be brought back."""

    reset: int
    summary: Summary | None
    turns: tuple[PastTurn, ...]


class SessionState(NamedTuple):
    """A session as of ``read_through`` (every record up to that journal sequence is in).

    ``head`` and ``head_digest``: the last planner record, on which the next one is fenced and chained.
    ``told_sequence`` and ``told_digest``: the anchor record that a prompt shows: the newest that is neither
    an acquire nor a takeover. ``pending``: accepted inputs that have no disposition yet. ``summary`` stands
    for the turns before those of ``history``. ``archives``: what resets took out of sight, the last reset last;
    together with ``history`` it is never more than a history may be. ``critical``: every line that people labelled
    so, word for word; none is ever dropped. ``snapshot_age``: planner records since the last snapshot.
    ``unsettled``: in the journal's order; later commands on a resource wait for these.
    ``refused``: inputs that were refused since the last turn began.
    ``passed_over``: sequences of records that cannot be read, and that a repair has accepted so.

    A named tuple, since each record changes two or three of its many fields: that costs a quarter of what it would
    cost a frozen dataclass.
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
    critical: tuple[str, ...] = ()
    unsettled: tuple[Unsettled, ...] = ()
    spent: Spent = Spent()
    refused: int = 0
    snapshot_sequence: int = 0
    snapshot_age: int = 0
    passed_over: tuple[int, ...] = ()

    def is_held_by(self, execution_id: str) -> bool:
        """Whether a turn is under way, and it is that process which takes it further."""
        anchor = self.anchor
        return (
            self.turn is not None
            and anchor is not None
            and anchor.status == "active"
            and anchor.execution_id == execution_id
        )

    def takes(self, sequence: int) -> bool:
        """Whether an input at ``sequence`` has no disposition yet, as far as the anchor and the running turn say."""
        anchor, turn = self.anchor, self.turn
        if anchor is None:
            return True
        if anchor.status == "deleted":
            # The deletion refuses all inputs that no turn took, and those that come later.
            return False
        pinned = anchor.turn.inputs_through if anchor.turn else 0
        if sequence <= max(anchor.inputs_through, pinned) or sequence in anchor.inputs_joined:
            return False
        return turn is None or sequence not in turn.joined

    def reading_through(self, sequence: int) -> SessionState:
        """The same state, known to be complete up to ``sequence``."""
        return self if sequence <= self.read_through else self._replace(read_through=sequence)
