"""The interface of a pack, by which a domain is plugged into the mesh.

A pack is found through the entry-point group ``anchorwatch.packs``. Its pure half (prompt, tools, reducer,
emergency, rules, invariants) is called by planner and executor; its live half (`PackRuntime`, made by
``connect``) accesses the real system and runs in the observer (``observe``) and the executor (``run``,
``reconcile``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from anchorwatch.bus.port import Bus
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.emergency import Sighting
from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.core.facts import Facts, Observation
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.tools import Invariant, ToolSpec
from anchorwatch.models.port import Situation, StepDecision


class ToolFailed(AnchorWatchError):
    """This attempt certainly did not do it."""

    code = "tool_failed"


class NeverDone(ToolFailed):
    """No attempt under this effect key has done it: the provider says so, or the call can never be sent."""


class OutcomeUnknown(AnchorWatchError):
    """The request was sent, and its outcome is unknown (a timeout after sending, a lost connection)."""

    code = "outcome_unknown"


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The context of a running command, with the key that identifies its effect to the provider.

    ``effect_key`` is the same in each attempt of the same command; ``attempt`` counts claims from 1.
    ``deadline_s``: seconds left. ``next_check_at_ms``: the session's next check;
    ``heartbeat_s``: the agent's.
    """

    ref: SessionRef
    call: CallId
    turn_id: str
    agent: AgentSpec
    effect_key: str
    attempt: int
    deadline_s: float
    now_ms: int
    heartbeat_s: float


@dataclass(frozen=True, slots=True)
class Artifact:
    """Bytes from a tool to store; they become immutable and keep their provenance."""

    name: str
    media_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool: ``text`` for the model, ``data`` (JSON) for programs.

    Two keys of ``data`` have a meaning for the mesh: ``next_check_at_ms`` (wake this session then) and
    ``notify`` ({"title", "text", "severity"}: the notifier sends it to people).
    """

    text: str
    data: Mapping[str, Any] = field(default_factory=dict)
    artifacts: tuple[Artifact, ...] = ()


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The provider's answer about an effect key. ``rejects_used_key``: a second run under this key cannot do it twice."""

    state: Literal["done", "not_done", "unknown"]
    result: ToolResult | None = None
    rejects_used_key: bool = False


@dataclass(frozen=True, slots=True)
class Probed:
    """An event from a probe: it is published once per ``event_id`` as ``aw.event.<ws>.<source>.<type>``."""

    event_id: str
    source: str
    type: str
    priority: Literal["P0", "P1", "P2"]
    data: Mapping[str, Any]


class PackRuntime(Protocol):
    """The live half: connected to the real system."""

    async def observe(self) -> Observation:
        """Observe now. A silent source gives unknown facts; it never raises for that."""
        ...

    def changes(self, before: Observation | None, now: Observation) -> Sequence[Probed]:
        """The events for a change from ``before`` to ``now``. Pure; ``before`` is None at first."""
        ...

    async def run(self, tool: str, args: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Run the tool.

        Raises:
            ToolFailed: certainly not done by this attempt. If an earlier attempt may have done it, the effect stays `unknown`.
            NeverDone: certainly not done, by any attempt under this effect key.
            OutcomeUnknown: it may have been done. Any other exception counts as this one, unless the tool is a read.
        """
        ...

    async def reconcile(self, tool: str, args: Mapping[str, Any], context: ToolContext) -> Reconciled:
        """Whether ``context.effect_key`` took effect; called for `reconcilable` tools only."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class HasBooks(Protocol):
    """A runtime whose real system counts effects, for crash tests. Optional."""

    async def times_done(self, tool: str, effect_key: str) -> int | None:
        """How often the effect of that key was really done, by the real system; None: unknown."""
        ...


@dataclass(frozen=True, slots=True)
class PackEnvironment:
    """The environment of a runtime: the bus, its agent and workspace, and the pack's own settings (from the environment)."""

    bus: Bus
    workspace: str
    agent: AgentSpec
    settings: Mapping[str, str]


class Pack(Protocol):
    """A domain. All but ``connect`` is pure: same arguments, same answer, no I/O.

    The members that decide (docs/packs.md shows a whole pack):

    >>> from anchorwatch.packs import UNKNOWN, EffectClass, Emergency, ProposedCall, StepDecision, ToolSpec
    >>> class Lamp:
    ...     name, version = "lamp", "1"
    ...
    ...     def tools(self, agent):
    ...         return [ToolSpec("switch_on", "Switch the lamp on.", {"type": "object"}, EffectClass.IDEMPOTENT)]
    ...
    ...     def resource(self, tool, args):
    ...         return "lamp"
    ...
    ...     def emergency(self, facts):
    ...         if facts["lit"] is UNKNOWN:
    ...             return UNKNOWN
    ...         return Emergency("dark", "it is dark") if not facts["lit"] else False
    ...
    ...     def rules(self, situation):
    ...         if situation.observation.facts["lit"]:
    ...             return StepDecision("It is lit.")
    ...         return StepDecision(calls=(ProposedCall("switch_on", {}),))
    >>> lamp = Lamp()
    >>> [tool.name for tool in lamp.tools(agent=None)], lamp.emergency({"lit": False})
    (['switch_on'], Emergency(kind='dark', what='it is dark'))
    """

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    def tools(self, agent: AgentSpec) -> Sequence[ToolSpec]:
        """All tools of the pack; the agent's grants choose among them."""
        ...

    def invariants(self, agent: AgentSpec) -> Sequence[Invariant]: ...
    def prompt(self, agent: AgentSpec) -> tuple[str, str]:
        """(role: the opening of the system prompt; critical rules: its end)."""
        ...

    def resource(self, tool: str, args: Mapping[str, Any]) -> str:
        """The resource of a call, such as ``instance/w-12``; conflicting commands share it.

        Commands that change one resource run one after the other, in all sessions of a workspace, and none runs
        while the effect of one is `unknown`. Empty: it conflicts with nothing.
        """
        ...

    def reduce(self, facts: Facts, observation: Observation) -> dict[str, Any]:
        """The anchor's facts after an observation."""
        ...

    def emergency(self, facts: Facts) -> Sighting:
        """The emergency that these facts show; False: there is none; `UNKNOWN` (None): they do not show it.

        It stays open until facts show False, or a person ends it. A turn that does not act on it is `unresolved`.
        """
        ...

    def rules(self, situation: Situation) -> StepDecision:
        """The deterministic decision of one step, used without a language model."""
        ...

    def check(self, agent: AgentSpec) -> None:
        """Check the agent's ``config`` and limits.

        Raises:
            BadInput: names each invalid value and the allowed ones.
        """
        ...

    async def connect(self, environment: PackEnvironment) -> PackRuntime: ...


@dataclass(frozen=True, slots=True)
class Stimulus:
    """An input for a session: a message of a person, or, with ``source`` and ``type``, an event."""

    text: str = ""
    source: str = ""
    type: str = ""
    priority: Literal["P0", "P1", "P2"] = "P0"
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Starter:
    """What ``anchorwatch up`` creates on the first start of a mesh.

    ``session`` runs ``agent``. ``try_first``: lines of (purpose, words of a command) for the greeting.
    """

    agent: AgentSpec
    session: str
    try_first: Sequence[tuple[str, str]] = ()


@runtime_checkable
class HasStarter(Protocol):
    """A pack with an agent to start with. Optional.

    Its own processes are entry points of the group ``anchorwatch.services``; the supervisor runs them next to the services.
    """

    def starter(self) -> Starter: ...


@runtime_checkable
class JudgesProgress(Protocol):
    """A pack whose actions can succeed and lead to nothing. Optional."""

    def no_progress(self, facts: Facts) -> str | None:
        """Why the latest actions led to nothing, by these facts; None: they led to something, or it is not known.

        While it is not None, each turn ends `unresolved`. So the session slows down, and people are notified after a few.
        """
        ...


@runtime_checkable
class HasHealth(Protocol):
    """A pack that can report on its real system to ``anchorwatch doctor``. Optional."""

    async def health(self, bus: Bus) -> str | None:
        """One line about the real system; None: it does not answer."""
        ...


@runtime_checkable
class HasExercise(Protocol):
    """A pack with exercises for a crash test. Optional."""

    async def exercise(self, environment: PackEnvironment, number: int) -> Sequence[Stimulus]:
        """The ``number``-th exercise (from 1): prepare the real system, and return the session's inputs."""
        ...
