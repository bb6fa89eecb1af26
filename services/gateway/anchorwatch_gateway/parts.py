"""What the routes work with: one object per gateway process, and the gateway's questions to other services."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog
from anchorwatch.bus.port import Bus
from anchorwatch.core.errors import AnchorWatchError, BadInput, BadSettings, NotFound, Unavailable
from anchorwatch.journal.artifacts import ArtifactJournal
from anchorwatch.journal.commit import Committer
from anchorwatch.journal.effects import EffectJournal
from anchorwatch.journal.lanes import Lanes
from anchorwatch.journal.orders import OrderJournal
from anchorwatch.journal.paces import PaceJournal
from anchorwatch.journal.schedules import ScheduleJournal
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.journal.switches import SwitchJournal
from anchorwatch.service import hooks
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.service.context import Clock, ServiceContext
from anchorwatch.service.event_publisher import EventPublisher
from anchorwatch.settings import Settings
from anchorwatch.topology.subjects import RPC_MEMORY

from anchorwatch_gateway.state import (
    Counters,
    DeadLetterIndex,
    HighWaterMark,
    HookState,
    SingleFlight,
    StreamLimit,
)

COMMIT_DEADLINE_S = 10.0
"""Shorter than clients wait: a client that gets 503 knows more than one whose connection timed out."""
MEMORY_TIMEOUT_S = 5.0
"""Longer than memory itself waits until it has read far enough."""

_ERRORS: dict[str, type[AnchorWatchError]] = {
    error.code: error for error in (BadInput, NotFound, Unavailable)
}


async def ask(
    bus: Bus, subject: str, params: Mapping[str, Any], *, service: str, timeout_s: float
) -> dict[str, Any]:
    """The answer of ``service`` to a question over the bus, a JSON object.

    Raises:
        NotFound, BadInput: the service says so. Unavailable: it does not answer, or failed to.
    """
    try:
        reply = await bus.request(subject, json.dumps(params).encode(), timeout_s)
    except Unavailable:
        raise Unavailable(
            f"the {service} service does not answer",
            hint=f"is the {service} service up? `anchorwatch status`",
        ) from None
    answer: dict[str, Any] = json.loads(reply)
    if "error" in answer:
        error = answer["error"]
        raise _ERRORS.get(error["code"], Unavailable)(error["message"], hint=error["hint"])
    return answer


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of memory: ``result``, and the journal sequence up to which it is complete."""

    result: dict[str, Any]
    as_of: int


class MemoryClient:
    """Asks the memory service."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def ask(self, verb: str, params: Mapping[str, Any]) -> Answer:
        """Raises as `ask`."""
        subject = RPC_MEMORY.at(verb=verb)
        answer = await ask(self._bus, subject, params, service="memory", timeout_s=MEMORY_TIMEOUT_S)
        return Answer(answer["result"], answer["as_of"])


@dataclass(frozen=True)
class Parts:
    """The gateway's parts. ``writer`` names this process in the records that it writes."""

    settings: Settings
    bus: Bus
    clock: Clock
    log: structlog.stdlib.BoundLogger
    stopping: asyncio.Event
    writer: str
    committer: Committer
    journal: SessionJournal
    orders: OrderJournal
    effects: EffectJournal
    switches: SwitchJournal
    schedules: ScheduleJournal
    artifacts: ArtifactJournal
    paces: PaceJournal
    agents: AgentDirectory
    events: EventPublisher
    memory: MemoryClient
    letters: DeadLetterIndex
    hooks: Mapping[str, HookState] = field(default_factory=dict)
    counters: Counters = field(default_factory=Counters)
    seen: HighWaterMark = field(default_factory=HighWaterMark)
    streams: StreamLimit = field(default_factory=StreamLimit)
    labelling: Lanes = field(default_factory=Lanes)
    in_flight: SingleFlight = field(default_factory=SingleFlight)
    commit_deadline_s: float = COMMIT_DEADLINE_S

    @property
    def token(self) -> str:
        """The bearer token.

        Raises:
            BadSettings: no token is set. The API never runs open to everyone.
        """
        token = self.settings.token.get_secret_value() if self.settings.token else ""
        if not token:
            raise BadSettings(
                "the gateway has no bearer token", hint="set ANCHORWATCH_TOKEN or ANCHORWATCH_TOKEN_FILE"
            )
        return token


async def assemble(context: ServiceContext) -> Parts:
    """The parts of a gateway that runs in this service context."""
    committer, writer = context.committer, context.identity.execution_id
    journal = SessionJournal(context.bus, committer, writer)
    return Parts(
        settings=context.settings,
        bus=context.bus,
        clock=context.clock,
        log=context.log,
        stopping=context.stopping,
        writer=writer,
        committer=committer,
        journal=journal,
        orders=OrderJournal(context.bus, committer, journal),
        effects=EffectJournal(context.bus, committer, writer),
        switches=SwitchJournal(context.bus, committer, writer),
        schedules=ScheduleJournal(context.bus, committer, writer),
        artifacts=ArtifactJournal(context.bus, committer, writer),
        paces=PaceJournal(context.bus, committer.stream, writer),
        agents=await AgentDirectory.open(context.bus),
        events=EventPublisher(context.bus),
        memory=MemoryClient(context.bus),
        letters=DeadLetterIndex(context.bus),
        hooks=_hooks(context),
    )


def _hooks(context: ServiceContext) -> Mapping[str, HookState]:
    """Raises BadSettings: the file of hooks cannot be used."""
    known = hooks.load(context.settings.hooks)
    for hook in known.values():
        context.log.info("hook.open" if hook.signature == "open" else "hook.ready", hook=str(hook))
    return {
        name: HookState(hook, hook.workspace or context.settings.workspace) for name, hook in known.items()
    }
