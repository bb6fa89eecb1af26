"""What the endpoints work with."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import structlog
from anchorwatch.bus.port import Bus
from anchorwatch.core.errors import BadSettings
from anchorwatch.journal.artifacts import ArtifactJournal
from anchorwatch.journal.commit import Committer
from anchorwatch.journal.effects import EffectJournal
from anchorwatch.journal.orders import OrderJournal
from anchorwatch.journal.paces import PaceJournal
from anchorwatch.journal.schedules import ScheduleJournal
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.journal.switches import SwitchJournal
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.service.context import Clock, ServiceContext
from anchorwatch.settings import Settings

from anchorwatch_gateway.counters import Counters
from anchorwatch_gateway.letter_book import LetterBook
from anchorwatch_gateway.memory import MemoryClient
from anchorwatch_gateway.seen import Seen
from anchorwatch_gateway.streams import Streams
from anchorwatch_gateway.under_way import UnderWay

COMMIT_DEADLINE_S = 10.0
"""Shorter than clients wait: one that is told to try again knows more than one whose connection ended."""


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
    memory: MemoryClient
    letters: LetterBook
    counters: Counters = field(default_factory=Counters)
    seen: Seen = field(default_factory=Seen)
    streams: Streams = field(default_factory=Streams)
    under_way: UnderWay = field(default_factory=UnderWay)
    commit_deadline_s: float = COMMIT_DEADLINE_S

    @property
    def token(self) -> str:
        """The bearer token.

        Raises:
            BadSettings: there is none; an API that is open to anyone is never meant.
        """
        token = self.settings.token.get_secret_value() if self.settings.token else ""
        if not token:
            raise BadSettings(
                "the gateway has no bearer token", hint="set ANCHORWATCH_TOKEN or ANCHORWATCH_TOKEN_FILE"
            )
        return token


async def assemble(context: ServiceContext) -> Parts:
    """The parts, from what the service was given."""
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
        memory=MemoryClient(context.bus),
        letters=LetterBook(context.bus),
    )
