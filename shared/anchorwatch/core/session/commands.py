"""What can be asked of a session. `anchorwatch.core.session.decide` says what comes of it.

The first seven are a planner's, the others a person's (or the mesh's own, where it says so). ``by`` is who asks,
``control_id`` the id of the receipt that the order is given, empty where it is given none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from anchorwatch.core.anchor import Anchor, Pace, PromptProof, RunOutcome, Status
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.core.session.events import StepHead
from anchorwatch.core.session.state import Input, Summary

CHECK_IN_MS = 60_000
"""How long after a turn that a person ended the session looks again by itself, where nobody says better."""


@dataclass(frozen=True, slots=True)
class Create:
    """Make the session."""

    ref: SessionRef
    agent: str
    objectives: tuple[str, ...]
    constraints: tuple[str, ...]
    at_ms: int
    by: str
    control_id: str = ""


@dataclass(frozen=True, slots=True)
class Acquire:
    """Start a turn: take all inputs up to ``through``. ``woken_by``: sequence of the message in hand (0: a sweep).

    ``pace``: the account of the agent's limits with this turn, where it has any.
    """

    turn_id: str
    agent: str
    execution_id: str
    woken_by: int
    through: int
    at_ms: int
    pace: Pace | None = None


@dataclass(frozen=True, slots=True)
class RefuseInputs:
    """Refuse these inputs, the oldest that wait in a session that is held, since too many do (`pacing.excess`).

    ``reason``: what holds it, `rate_limited`, `paused` or `kill_switch`, and a colon, if there is more to say.
    """

    inputs: tuple[Input, ...]
    at_ms: int
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Go on with a turn whose planner is gone, or that another planner's outcome belongs to."""

    execution_id: str
    woken_by: int
    at_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call that passed the planner's own checks and becomes a command. ``verb``: its intent (empty: the tool's name)."""

    n: int
    tool: str
    args: Mapping[str, Any]
    label: str
    pool: str
    resource: str
    verb: str = ""
    mutating: bool = True


@dataclass(frozen=True, slots=True)
class CommitStep:
    """Decide a step that asks for calls. ``seen_again_at_ms``: when its observation was seen to be still so; 0: never."""

    execution_id: str
    head: StepHead
    calls: tuple[PlannedCall, ...]
    seen_again_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class EndTurn:
    """Bring the turn to rest. ``head``: its last step, where it had one. ``warning``: what people should hear of it, too."""

    execution_id: str
    outcome: RunOutcome
    reason: str
    facts: Mapping[str, Any]
    next_check_at_ms: int
    head: StepHead | None
    prompt: PromptProof | None
    at_ms: int
    warning: str = ""


@dataclass(frozen=True, slots=True)
class Compact:
    """Let ``summary`` stand for the oldest turns that the conversation shows; ``tokens`` of the request, before and after."""

    execution_id: str
    summary: Summary
    tokens: tuple[int, int]
    because: str = ""
    usage: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Control:
    """What is ordered: `paused`, `resumed`, `cancelled` (with ``turn_id``), `deleted`; `quarantined` by the mesh itself.

    ``check_in_ms``: how long after a cancelled turn the session looks again by itself, where no check lies ahead.
    """

    kind: Kind
    by: str
    at_ms: int
    reason: str = ""
    turn_id: str | None = None
    control_id: str = ""
    check_in_ms: int = CHECK_IN_MS


@dataclass(frozen=True, slots=True)
class Direct:
    """Change the objectives or the constraints; only people do."""

    by: str
    at_ms: int
    which: Literal["objectives", "constraints"]
    change: Literal["set", "add", "remove"]
    items: tuple[str, ...]
    reason: str = ""
    control_id: str = ""


@dataclass(frozen=True, slots=True)
class Steer:
    """Say something to the running turn ``turn_id``: its model is shown it at the next step, or the turn goes on until it was."""

    by: str
    at_ms: int
    turn_id: str
    text: str
    control_id: str = ""


@dataclass(frozen=True, slots=True)
class ClearWakes:
    """Dispose of the inputs that wait, up to journal sequence ``through``; a running turn keeps what it took."""

    by: str
    at_ms: int
    through: int
    reason: str = ""
    control_id: str = ""


@dataclass(frozen=True, slots=True)
class Reset:
    """Archive the conversation, and dispose of the inputs that wait, up to journal sequence ``through``.

    ``head``: the planner record that whoever orders it has seen last; 0: it is to be done whatever happened since.
    ``check_in_ms``: as `Control`.
    """

    by: str
    at_ms: int
    through: int
    head: int = 0
    reason: str = ""
    control_id: str = ""
    check_in_ms: int = CHECK_IN_MS


@dataclass(frozen=True, slots=True)
class UndoReset:
    """Bring back the conversation that the last reset archived. What was disposed of stays so."""

    by: str
    at_ms: int
    reason: str = ""
    control_id: str = ""


@dataclass(frozen=True, slots=True)
class Repair:
    """Accept what was lost.

    ``believed``: the newest anchor that is safe to believe. ``restarts``: the session did not run, so its turn ends
    `failed` and it checks at once. ``was``: its status before the quarantine. ``more``: what the record says of the loss.
    """

    by: str
    at_ms: int
    believed: Anchor
    restarts: bool
    was: Status
    reason: str
    note: str
    control_id: str
    more: Mapping[str, Any]


Order = Control | Direct | Steer | ClearWakes | Reset | UndoReset
"""What changes a session that is there, and is not its planner's to do."""

Command = Create | Acquire | RefuseInputs | TakeOver | CommitStep | EndTurn | Compact | Order | Repair
