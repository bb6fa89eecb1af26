"""Requests to a session; `anchorwatch.core.session.decide` decides them.

The first eight come from planners, the others from people (or from the mesh, where stated). ``by``: who requests it;
``control_id``: the id of the order's receipt, empty without one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from anchorwatch.core.anchor import Anchor, Pace, PromptProof, RunOutcome, Status
from anchorwatch.core.emergency import Sighting
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.core.session.events import StepHead
from anchorwatch.core.session.state import Input, Summary

CHECK_IN_MS = 60_000
"""Default delay of the next check after a turn that a person ended."""


@dataclass(frozen=True, slots=True)
class Create:
    """Create the session."""

    ref: SessionRef
    agent: str
    objectives: tuple[str, ...]
    constraints: tuple[str, ...]
    at_ms: int
    by: str
    control_id: str = ""


@dataclass(frozen=True, slots=True)
class Acquire:
    """Start a turn: take all inputs up to ``through``. ``woken_by``: sequence of the planner's message (0: a sweep).

    ``pace``: the account of the agent's rate limits after this turn, if it has any.
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
    """Refuse these inputs, the oldest pending ones of a held session, because too many are pending (`pacing.excess`).

    ``reason``: `rate_limited`, `paused` or `kill_switch`, optionally followed by a colon and details.
    """

    inputs: tuple[Input, ...]
    at_ms: int
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Continue a turn whose planner is dead, or whose outcome reached another planner."""

    execution_id: str
    woken_by: int
    at_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call that passed the planner's checks and becomes a command. ``verb``: its intent (empty: the tool's name)."""

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
    """Commit a step with its calls. ``seen_again_at_ms``: when its observation was confirmed; 0: never."""

    execution_id: str
    head: StepHead
    calls: tuple[PlannedCall, ...]
    seen_again_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class NoteEmergency:
    """Record that the observation at ``seen_at_ms`` raised, changed or ended an emergency."""

    execution_id: str
    seen: Sighting
    seen_at_ms: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class RequestModel:
    """Reserve a request that is about to be sent. ``reserves``, ``usage``, ``at_ms``: as in `ModelRequested`."""

    execution_id: str
    model: str
    reserves: Mapping[str, int]
    usage: Mapping[str, int]
    at_ms: int


@dataclass(frozen=True, slots=True)
class EndTurn:
    """End the turn. ``head``: its last step, if it had one. ``warning``: a further notice for people.

    ``goal_facts``: the facts that objectives compare with numbers.
    ``seen``, ``seen_at_ms``: of its last observation, which renews an open emergency of the same kind.
    ``usage``: of model calls that gave no step.
    """

    execution_id: str
    outcome: RunOutcome
    reason: str
    facts: Mapping[str, Any]
    next_check_at_ms: int
    head: StepHead | None
    prompt: PromptProof | None
    at_ms: int
    warning: str = ""
    seen: Sighting = None
    seen_at_ms: int = 0
    goal_facts: Mapping[str, Any] = field(default_factory=dict)
    usage: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Compact:
    """Replace the oldest shown turns by ``summary``; ``tokens``: of the request before and after."""

    execution_id: str
    summary: Summary
    tokens: tuple[int, int]
    because: str = ""
    usage: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Control:
    """A control order: `paused`, `resumed`, `cancelled` (with ``turn_id``), `deleted`; `quarantined` by the mesh itself.

    ``check_in_ms``: the delay of the next check after a cancelled turn, if none is scheduled.
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
    """Change the objectives or the constraints; only people do.

    ``rule``: CEL that executors enforce, of the one constraint that is added.
    """

    by: str
    at_ms: int
    which: Literal["objectives", "constraints"]
    change: Literal["set", "add", "remove"]
    items: tuple[str, ...]
    reason: str = ""
    control_id: str = ""
    rule: str = ""


CRITICAL_LINES = "critical"
"""What the record of `Relabel` says that it changed."""


@dataclass(frozen=True, slots=True)
class Relabel:
    """Withdraw the labelled line ``line`` from later prompts, or put ``text`` in its place."""

    by: str
    at_ms: int
    line: str
    text: str = ""
    reason: str = ""
    control_id: str = ""


@dataclass(frozen=True, slots=True)
class Steer:
    """Send a message to the running turn ``turn_id``: it does not end before its model has seen the message."""

    by: str
    at_ms: int
    turn_id: str
    text: str
    control_id: str = ""


@dataclass(frozen=True, slots=True)
class ClearWakes:
    """Dispose of the pending inputs up to journal sequence ``through``; a running turn keeps its inputs."""

    by: str
    at_ms: int
    through: int
    reason: str = ""
    control_id: str = ""


@dataclass(frozen=True, slots=True)
class Reset:
    """Archive the conversation, and dispose of the pending inputs up to journal sequence ``through``.

    ``head``: the planner record of the preview; 0: reset whatever has happened since.
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
    """Restore the conversation of the last reset. Disposed inputs stay disposed."""

    by: str
    at_ms: int
    reason: str = ""
    control_id: str = ""


@dataclass(frozen=True, slots=True)
class EndEmergency:
    """End the open emergency. An observation that shows it raises it again."""

    by: str
    at_ms: int
    reason: str
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


Order = Control | Direct | Relabel | Steer | ClearWakes | Reset | UndoReset | EndEmergency
"""Changes of an existing session that people order."""

Command = (
    Create
    | Acquire
    | RefuseInputs
    | TakeOver
    | RequestModel
    | CommitStep
    | NoteEmergency
    | EndTurn
    | Compact
    | Order
    | Repair
)
