"""A command at work: its record, its tool, its effect key, and the form of its outcome."""

from __future__ import annotations

from dataclasses import dataclass

from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.effect.state import Claim, EffectState, Outcome, OutcomeState
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.session.events import CommandDecided
from anchorwatch.core.tools import ToolSpec
from anchorwatch.journal.blocks import Entry, Resource
from anchorwatch.packs.port import Pack, PackRuntime, ToolContext


@dataclass(frozen=True, slots=True)
class Job:
    """A command, and the ``sequence`` and the unique ``digest`` of its record.

    ``attempt`` counts its deliveries. No other process can have seen a first one, so its records are not read; if that is wrong,
    the first write is fenced. ``reach``: the sequence of a later message about the command; its records are read up to there.
    """

    ref: SessionRef
    sequence: int
    digest: str
    command: CommandDecided
    attempt: int = 1
    reach: int = 0

    @property
    def call(self) -> CallId:
        return self.command.call

    @property
    def pool(self) -> str:
        return self.command.pool

    @property
    def identity(self) -> tuple[SessionRef, CallId]:
        """The same for every delivery of the same command."""
        return self.ref, self.call

    def __str__(self) -> str:
        return f"{self.ref}/{self.call}"


@dataclass(frozen=True, slots=True)
class Equipment:
    """What a command runs with: the agent's pinned definition, its pack, the tool, and the connection to the real system."""

    agent: AgentSpec
    pack: Pack
    tool: ToolSpec
    runtime: PackRuntime


def tool_of(pack: Pack, agent: AgentSpec, job: Job) -> ToolSpec | None:
    """The tool that the command names, if its pool has it."""
    tools = (tool for tool in pack.tools(agent) if tool.pool == job.pool)
    return next((tool for tool in tools if tool.name == job.command.tool), None)


def resource_of(job: Job, pack: str) -> Resource:
    """The resource that the command works on; its ``name`` is empty if it names none."""
    return Resource(job.ref.workspace, pack, job.command.resource)


def entry_of(job: Job, attempt: int = 0) -> Entry:
    """The command in the register of its resource. ``attempt``: the number of the claim that follows; 0: of none."""
    return Entry(job.ref.session, job.call, job.pool, attempt)


def outcome(
    job: Job,
    state: OutcomeState,
    text: str,
    *,
    error: str = "",
    rule: str = "",
    claim: Claim | None = None,
    durable: bool = True,
) -> Outcome:
    """An outcome of this command, without the tool's data. ``claim``: the claim under which it was decided."""
    return Outcome(
        call=job.call,
        tool=job.command.tool,
        state=state,
        text=text,
        data={},
        durable=durable,
        error=error,
        rule=rule,
        resource=job.command.resource,
        effect_key=claim.effect_key if claim else "",
        claim_sequence=claim.sequence if claim else 0,
        turn_id=job.command.turn_id,
    )


def context_of(
    job: Job, equipment: Equipment, state: EffectState, *, now_ms: int, heartbeat_s: float
) -> ToolContext:
    """The context of the tool's call. ``heartbeat_s``: for an agent that sets none."""
    return ToolContext(
        ref=job.ref,
        call=job.call,
        turn_id=job.command.turn_id,
        agent=equipment.agent,
        effect_key=state.claim.effect_key if state.claim else job.command.effect_key,
        attempt=state.claim.attempt if state.claim else job.attempt,
        deadline_s=equipment.tool.timeout_s,
        now_ms=now_ms,
        heartbeat_s=equipment.agent.heartbeat_s or heartbeat_s,
    )
