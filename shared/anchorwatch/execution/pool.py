"""Takes a pool's commands from the journal and has each run, so many at a time. An ack comes after the outcome is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from anchorwatch.bus.port import Delivery, Stored, Unreadable
from anchorwatch.codec import decode
from anchorwatch.core.effect.state import Owner
from anchorwatch.core.errors import BadInput, Damaged, Fenced, NewerSchema, Unavailable
from anchorwatch.core.letters import DeadLetter
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.edges import Edge, reached
from anchorwatch.execution.firsts import Firsts
from anchorwatch.execution.giving_up import GivingUp
from anchorwatch.execution.job import Job
from anchorwatch.execution.leave import Leave
from anchorwatch.execution.message import SERVICE, SHARD, Message, pool_consumer, read_message
from anchorwatch.execution.recorder import Recorder
from anchorwatch.execution.runner import Runner, RuntimeFor
from anchorwatch.journal.artifacts import ArtifactJournal
from anchorwatch.journal.blocks import BlockJournal
from anchorwatch.journal.effects import EffectJournal
from anchorwatch.journal.mapping import read_command
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.packs import registry
from anchorwatch.packs.port import Pack
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.intake import Intake
from anchorwatch.service.keepalive import KeepAlive
from anchorwatch.service.letters import DeadLetters
from anchorwatch.service.orders import Orders
from anchorwatch.service.worker import Done, Result, RetryIn
from anchorwatch.topology.streams import journal_stream
from anchorwatch.topology.subjects import SessionSubjects, parse_register

FAULT_S_MAX = 10.0
AGAIN_S = 0.5
FINISH_S_MAX = 6.0
"""How long a service that stops lets its commands end; the process is given a little longer."""


@dataclass(slots=True)
class _InHand:
    """A command at work, with every delivery that is about it.

    ``again``: another message of it came meanwhile; ``reach``: its sequence.
    """

    message: Message
    attempt: int
    deliveries: list[Delivery] = field(default_factory=list)
    again: bool = False
    reach: int = 0


class PoolRunner:
    """Executes one pool until ``context.stopping``.

    ``runtime_for`` connects an agent to its real system; ``load_pack`` finds a pack by name.
    """

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
        self._context = context
        self._concurrency = concurrency
        self._log = context.log.bind(pool=pool)
        self._alive = KeepAlive()
        self._intake = Intake(context.bus, pool_consumer(pool), context.stopping, context.crashes)
        self._firsts = Firsts(context.bus, journal_stream(SHARD), self._intake)
        self._in_hand: dict[tuple[SessionRef, CallId], _InHand] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._runner = _make_runner(context, agents, runtime_for, load_pack)
        self._giving_up = _make_giving_up(context, agents, self._runner)
        self._letters = DeadLetters(context)
        self._orders = Orders(
            context,
            self._letters,
            self,
            SERVICE,
            f"dead-{SERVICE}-{pool}",
            lambda letter: parse_register(letter.address.subject).pool == pool,
        )

    async def run(self) -> None:
        """Take commands until told to stop, then let those at work end."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._take(), name="commands")
            tasks.create_task(self._orders.run(), name="letters")

    async def _take(self) -> None:
        alive = asyncio.create_task(self._alive.run(), name="in-progress")
        try:
            await self._intake.open()
            await self._firsts.look()
            self._context.ready.set()
            for stored in await self._intake.unfinished():
                await self._room()
                self._begin(stored, attempt=2, delivery=None)
            while not self._context.stopping.is_set():
                for delivery in await self._intake.next(await self._room()):
                    self._begin(delivery.stored, delivery.attempt, delivery)
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=FINISH_S_MAX)
        finally:
            for task in (alive, *self._tasks):
                task.cancel()
            await asyncio.gather(alive, *self._tasks, return_exceptions=True)
            await self._intake.close()

    async def _room(self) -> int:
        """How many commands may be taken; waits until there is room for one."""
        while len(self._tasks) >= self._concurrency:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        return self._concurrency - len(self._tasks)

    def _begin(self, stored: Stored, attempt: int, delivery: Delivery | None) -> None:
        if delivery is not None:
            self._alive.hold(delivery)
        deliveries = [delivery] if delivery is not None else []
        result: Result = Done()
        try:
            message = read_message(stored)
        except NewerSchema as error:
            # An executor of that release can run it.
            self._log.error(
                "a command is left to a newer release", sequence=stored.sequence, why=error.message
            )
            message, result = None, RetryIn(FAULT_S_MAX)
        except (BadInput, Damaged, KeyError, TypeError, ValueError) as error:
            # It can never run. Whoever loads the session sees the same damage, and quarantines it.
            self._log.error("a command cannot be read", sequence=stored.sequence, reason=str(error)[:300])
            message = None
        if message is None:
            self._spawn(self._answer(deliveries, result))
            return
        at_work = self._in_hand.get(message.identity)
        if at_work is not None:
            at_work.deliveries += deliveries
            at_work.again = at_work.again or at_work.message.sequence != message.sequence
            at_work.reach = max(at_work.reach, message.sequence)
            return
        self._in_hand[message.identity] = in_hand = _InHand(message, attempt, deliveries)
        self._spawn(self._work(in_hand))

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, in_hand: _InHand) -> None:
        result = await self._advance(in_hand)
        while in_hand.again:
            in_hand.again, in_hand.attempt = False, in_hand.attempt + 1
            result = await self._advance(in_hand)
        del self._in_hand[in_hand.message.identity]
        await self._answer(in_hand.deliveries, result)

    async def _answer(self, deliveries: list[Delivery], result: Result) -> None:
        for delivery in deliveries:
            self._alive.drop(delivery)
            match result:
                case Done():
                    reached(Edge.EXECUTOR_ACK_BEFORE)
                    await delivery.ack()
                case RetryIn(seconds):
                    await delivery.nak(seconds)

    async def _advance(self, in_hand: _InHand) -> Result:
        later = RetryIn(min(0.5 * 2.0 ** min(in_hand.attempt - 1, 10), FAULT_S_MAX))
        message = in_hand.message
        try:
            async with self._letters.guard(message.address, in_hand.attempt) as admitted:
                return await self._runner.handle(await self._job(in_hand)) if admitted else Done()
        except (Unavailable, Fenced) as error:
            self._log.warning("a command waits", sequence=message.sequence, reason=error.message)
            return later
        except Exception as error:  # noqa: BLE001 - a pack may raise anything, and one command must not stop the others
            if isinstance(error, Unreadable) or (isinstance(error, Damaged) and error.sequence):
                # No fault of the command's: its session is quarantined, and it waits for the repair.
                self._log.error(
                    "a command waits for a repair", sequence=message.sequence, reason=error.message
                )
                return RetryIn(FAULT_S_MAX)
            self._log.exception("a command cannot be handled", sequence=message.sequence)
            return Done() if await self._letters.failed(message.address, error) else later

    async def take_up(self, letter: DeadLetter) -> Result:
        """Handle a command that could not be handled, once more."""
        message = read_message(await self._letters.message(letter.address))
        if message is None:
            return Done()
        if message.identity in self._in_hand:
            return RetryIn(AGAIN_S)
        self._in_hand[message.identity] = in_hand = _InHand(message, attempt=2)
        try:
            job = await self._job(in_hand)
            if await self._giving_up.ask_anew(job, letter):
                return Done()
            return await self._runner.handle(job)
        finally:
            del self._in_hand[message.identity]
            await self._answer(in_hand.deliveries, RetryIn(AGAIN_S))

    async def settle(self, letter: DeadLetter) -> None:
        """Give a command that is given up its outcome."""
        message = read_message(await self._letters.message(letter.address))
        if message is None:
            return
        if message.identity in self._in_hand:
            raise Unavailable("it is being handled just now")
        await self._giving_up.settle(await self._job(_InHand(message, attempt=2)), letter)

    async def _job(self, in_hand: _InHand) -> Job:
        """The command in hand.

        Raises:
            Damaged, Unavailable.
        """
        message = in_hand.message
        if message.command is not None:
            at, digest = message.sequence, message.digest
            attempt = await self._firsts.attempt(at, in_hand.attempt)
            return Job(message.ref, at, digest, message.command, attempt, in_hand.reach)
        effects = self._runner.recorder.effects
        reach = max(message.sequence, in_hand.reach)
        state = await effects.load(message.ref, message.pool, message.call, 0, reach)
        if state.gate is None:
            raise Damaged(
                f"sequence {message.sequence}: an answer to what nobody asked", sequence=message.sequence
            )
        subject = SessionSubjects(message.ref).command(message.pool)
        page = await self._context.bus.range(journal_stream(SHARD), subject, state.gate.command, limit=1)
        if not page.messages or page.messages[0].sequence != state.gate.command:
            raise Damaged(
                f"sequence {message.sequence}: its command is not at {state.gate.command}",
                sequence=message.sequence,
            )
        record = decode(page.messages[0].payload)
        command = read_command(message.pool, record.body)
        attempt = in_hand.attempt + 1
        return Job(message.ref, state.gate.command, record.digest, command, attempt, reach)


def _make_giving_up(context: ServiceContext, agents: AgentDirectory, runner: Runner) -> GivingUp:
    return GivingUp(runner.recorder, context.committer, agents, context.peers, runner.me, context.log)


def _make_runner(
    context: ServiceContext, agents: AgentDirectory, runtime_for: RuntimeFor, load_pack: Callable[[str], Pack]
) -> Runner:
    identity, committer = context.identity, context.committer
    me = Owner(identity.instance, identity.incarnation)
    sessions = SessionJournal(context.bus, committer, identity.execution_id)
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
    return Runner(
        bus=context.bus,
        sessions=sessions,
        leave=Leave(sessions, effects, blocks, context.clock, context.log),
        recorder=recorder,
        agents=agents,
        load_pack=load_pack,
        runtime_for=runtime_for,
        peers=context.peers,
        clock=context.clock,
        me=me,
        heartbeat_s=context.settings.heartbeat_s,
        log=context.log,
    )
