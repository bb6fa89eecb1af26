"""A pool's worker: takes commands and the answers at their gates from the journal, and has each run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from anchorwatch.bus import port
from anchorwatch.bus.port import Stored
from anchorwatch.codec import decode
from anchorwatch.core.effect.state import Owner
from anchorwatch.core.errors import BadInput, Damaged, NewerSchema
from anchorwatch.core.letters import Address, DeadLetter
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.edges import Edge
from anchorwatch.executor import pipeline
from anchorwatch.executor.dead_letters import CommandLetters
from anchorwatch.executor.job import Job
from anchorwatch.executor.message import SERVICE, Message, RedeliveryGuard, pool_consumer, read_message
from anchorwatch.executor.pipeline import Executor, RuntimeFor
from anchorwatch.executor.recorder import Recorder
from anchorwatch.journal.artifacts import ArtifactJournal
from anchorwatch.journal.blocks import BlockJournal
from anchorwatch.journal.effects import EffectJournal
from anchorwatch.journal.mapping import read_command
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.packs import registry
from anchorwatch.packs.port import Pack
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.journal_guard import JournalGuard
from anchorwatch.service.letters import DeadLetters
from anchorwatch.service.retries import DeadLetterRetrier
from anchorwatch.service.worker import Done, Malformed, Result, RetryIn, Skip, Worker
from anchorwatch.topology.streams import journal_stream
from anchorwatch.topology.subjects import SessionSubjects, parse_register

REPAIR_S = 10.0
"""How long a command waits whose session cannot be read: the session is quarantined, and a person repairs it."""


class PoolRunner(Worker[Message]):
    """Executes one pool until ``context.stopping``.

    ``runtime_for`` connects an agent to its real system; ``load_pack`` finds a pack by name.
    """

    ack_edge = Edge.EXECUTOR_ACK_BEFORE
    finish_s = 6.0

    def __init__(
        self,
        context: ServiceContext,
        pool: str,
        agents: AgentDirectory,
        runtime_for: RuntimeFor,
        *,
        concurrency: int,
        load_pack: Callable[[str], Pack] = registry.load,
    ) -> None:
        letters = DeadLetters(context)
        super().__init__(context, pool_consumer(pool), concurrency=concurrency, letters=letters)
        self._redelivery = RedeliveryGuard(context.bus, journal_stream(), self.intake)
        self._executor = _make_executor(context, agents, runtime_for, load_pack)
        self._command_letters = _make_command_letters(context, self._executor)
        self._journal_guard = JournalGuard(context.bus, journal_stream(), context.clock, context.log)
        self._retrier = DeadLetterRetrier(
            context,
            letters,
            self,
            SERVICE,
            f"dead-{SERVICE}-{pool}",
            lambda letter: parse_register(letter.address.subject).pool == pool,
        )

    async def run(self) -> None:
        """Run commands, and retry those with a dead letter, until the service stops."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super().run(), name="commands")
            tasks.create_task(self._retrier.run(), name="letters")

    async def opened(self) -> None:
        await self._redelivery.mark()
        self.context.ready.set()

    def parse(self, stored: Stored) -> Message | Skip | Malformed:
        try:
            return read_message(stored) or Skip()
        except NewerSchema:
            raise
        except (BadInput, Damaged, KeyError, TypeError, ValueError) as error:
            # The planner that loads the session meets the same damage, and quarantines it.
            return Malformed(str(error)[:300])

    def key(self, item: Message) -> tuple[SessionRef, CallId]:
        return item.identity

    def address(self, stored: Stored, item: Message | None) -> Address | None:  # noqa: ARG002
        return item.address if item is not None else None

    async def handle(self, item: Message, attempt: int) -> Result:
        try:
            return await pipeline.handle(self._executor, await self._job(item, attempt))
        except Damaged as error:
            if not (isinstance(error, port.Unreadable) or error.sequence):
                raise
            # Not the command's fault: its session is quarantined, and the command waits for the repair.
            self.log.error("command.waits_for_repair", sequence=item.sequence, reason=error.message)  # noqa: TRY400
            return RetryIn(REPAIR_S)

    async def retry(self, item: Message, letter: DeadLetter) -> Result:
        job = await self._job(item, 2)
        if await self._command_letters.request_decision(job, letter):
            return Done()
        return await pipeline.handle(self._executor, job)

    async def settle(self, letter: DeadLetter) -> None:
        """Give a command that is given up its outcome."""
        current = await self.of_letter(letter)
        if current is None:
            return
        async with self.hold(current):
            await self._command_letters.settle(await self._job(current.item, 2), letter)

    async def _job(self, message: Message, attempt: int) -> Job:
        """The command that a message is about.

        Raises:
            Damaged, Unavailable.
        """
        await self._journal_guard.check()
        if message.command is not None:
            attempt = await self._redelivery.attempt(message.sequence, attempt)
            return Job(message.ref, message.sequence, message.digest, message.command, attempt)
        effects, reach = self._executor.effects, message.sequence
        state = await effects.load(message.ref, message.pool, message.call, 0, reach)
        if state.gate is None:
            raise Damaged(f"sequence {reach}: an answer to a gate that is not there", sequence=reach)
        subject = SessionSubjects(message.ref).command(message.pool)
        page = await self.context.bus.range(journal_stream(), subject, state.gate.command, limit=1)
        if not page.messages or page.messages[0].sequence != state.gate.command:
            raise Damaged(f"sequence {reach}: its command is not at {state.gate.command}", sequence=reach)
        record = decode(page.messages[0].payload)
        command = read_command(message.pool, record.body)
        return Job(message.ref, state.gate.command, record.digest, command, attempt + 1, reach)


def _make_command_letters(context: ServiceContext, executor: Executor) -> CommandLetters:
    return CommandLetters(
        executor.recorder, context.committer, executor.agents, context.peers, executor.me, context.log
    )


def _make_executor(
    context: ServiceContext, agents: AgentDirectory, runtime_for: RuntimeFor, load_pack: Callable[[str], Pack]
) -> Executor:
    identity, committer = context.identity, context.committer
    me = Owner(identity.instance, identity.incarnation)
    effects = EffectJournal(context.bus, committer, identity.execution_id)
    blocks = BlockJournal(context.bus, committer, identity.execution_id)
    recorder = Recorder(
        context.bus,
        effects,
        blocks,
        ArtifactJournal(context.bus, committer, identity.execution_id),
        context.clock,
        me,
        identity.execution_id,
        context.log,
    )
    return Executor(
        bus=context.bus,
        sessions=SessionJournal(context.bus, committer, identity.execution_id),
        effects=effects,
        blocks=blocks,
        recorder=recorder,
        agents=agents,
        load_pack=load_pack,
        runtime_for=runtime_for,
        peers=context.peers,
        clock=context.clock,
        me=me,
        heartbeat_s=context.settings.heartbeat_s,
        random=context.random,
        log=context.log,
    )
