"""Takes a pool's commands from the journal and has each run, so many at a time. An ack comes after the outcome is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

from anchorwatch.bus.port import ConsumerSpec, Delivery, Stored
from anchorwatch.codec import decode
from anchorwatch.core.effect.state import GateDecided, Owner
from anchorwatch.core.errors import BadInput, Damaged, Fenced, Unavailable
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.session.events import CommandDecided
from anchorwatch.edges import Edge, reached
from anchorwatch.execution.job import Job
from anchorwatch.execution.leave import Leave
from anchorwatch.execution.recorder import Recorder
from anchorwatch.execution.runner import Runner, RuntimeFor
from anchorwatch.journal.artifacts import ArtifactJournal
from anchorwatch.journal.blocks import BlockJournal
from anchorwatch.journal.commit import Committer
from anchorwatch.journal.effect_mapping import read_effect
from anchorwatch.journal.effects import EffectJournal
from anchorwatch.journal.mapping import read_command
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.packs import registry
from anchorwatch.packs.port import Pack
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.intake import Intake
from anchorwatch.service.keepalive import ACK_WAIT_S, KeepAlive
from anchorwatch.topology.streams import journal_stream
from anchorwatch.topology.subjects import COMMAND, EFFECT, GATE, SessionSubjects, parse_register

SHARD = "0"
# Commands of a paused session wait here, and must not keep those of others out.
ACK_PENDING_MAX = 4096
FAULT_S_MAX = 10.0
FINISH_S_MAX = 6.0
"""How long a service that stops lets its commands end; the process is given a little longer."""


def pool_consumer(pool: str) -> ConsumerSpec:
    """The consumer that all executors of a pool share."""
    return ConsumerSpec(
        stream=journal_stream(SHARD),
        filters=(
            COMMAND.filter(shard=SHARD, pool=pool),
            EFFECT.filter(shard=SHARD, pool=pool, register=GATE),
        ),
        durable=f"executor-{pool}",
        ack_wait_s=ACK_WAIT_S,
        ack_pending_max=ACK_PENDING_MAX,
    )


@dataclass(frozen=True, slots=True)
class _Message:
    """What a delivery is about. ``command`` (and ``digest``, its record's) is missing where it is an answer at a gate."""

    sequence: int
    ref: SessionRef
    call: CallId
    pool: str
    command: CommandDecided | None = None
    digest: str = ""

    @property
    def identity(self) -> tuple[SessionRef, CallId]:
        return self.ref, self.call


@dataclass(slots=True)
class _InHand:
    """A command at work, with every delivery that is about it. ``again``: another message of it came meanwhile."""

    message: _Message
    attempt: int
    deliveries: list[Delivery] = field(default_factory=list)
    again: bool = False


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
        self._intake = Intake(context.bus, pool_consumer(pool), context.stopping)
        self._in_hand: dict[tuple[SessionRef, CallId], _InHand] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._runner = _make_runner(context, agents, runtime_for, load_pack)

    async def run(self) -> None:
        """Take commands until told to stop, then let those at work end."""
        alive = asyncio.create_task(self._alive.run(), name="in-progress")
        try:
            await self._intake.open()
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
        try:
            message = _read(stored)
        except (BadInput, Damaged, KeyError, TypeError, ValueError) as error:
            # It can never run. Whoever loads the session sees the same damage, and quarantines it.
            self._log.error("a command cannot be read", sequence=stored.sequence, reason=str(error)[:300])
            message = None
        if message is None:
            self._spawn(self._answer(deliveries, None))
            return
        at_work = self._in_hand.get(message.identity)
        if at_work is not None:
            at_work.deliveries += deliveries
            at_work.again = at_work.again or at_work.message.sequence != message.sequence
            return
        self._in_hand[message.identity] = in_hand = _InHand(message, attempt, deliveries)
        self._spawn(self._work(in_hand))

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, in_hand: _InHand) -> None:
        delay = await self._advance(in_hand)
        while in_hand.again:
            in_hand.again, in_hand.attempt = False, in_hand.attempt + 1
            delay = await self._advance(in_hand)
        del self._in_hand[in_hand.message.identity]
        await self._answer(in_hand.deliveries, delay)

    async def _answer(self, deliveries: list[Delivery], delay_s: float | None) -> None:
        for delivery in deliveries:
            self._alive.drop(delivery)
            if delay_s is None:
                reached(Edge.EXECUTOR_ACK_BEFORE)
                await delivery.ack()
            else:
                await delivery.nak(delay_s)

    async def _advance(self, in_hand: _InHand) -> float | None:
        later_s = min(0.5 * 2.0 ** min(in_hand.attempt - 1, 10), FAULT_S_MAX)
        sequence = in_hand.message.sequence
        try:
            return await self._runner.handle(await self._job(in_hand))
        except (Unavailable, Fenced) as error:
            self._log.warning("a command waits", sequence=sequence, reason=error.message)
            return later_s
        except Damaged as error:
            self._log.error("a command cannot be run", sequence=sequence, reason=error.message)
            return FAULT_S_MAX
        except Exception:  # noqa: BLE001 - a pack may raise anything, and one command must not stop the others
            self._log.exception("a command waits, for a fault", sequence=sequence)
            return later_s

    async def _job(self, in_hand: _InHand) -> Job:
        """The command in hand.

        Raises:
            Damaged, Unavailable.
        """
        message = in_hand.message
        if message.command is not None:
            return Job(message.ref, message.sequence, message.digest, message.command, in_hand.attempt)
        state = await self._runner.recorder.effects.load(message.ref, message.pool, message.call, 0)
        if state.gate is None:
            raise Damaged(f"sequence {message.sequence}: an answer to what nobody asked")
        subject = SessionSubjects(message.ref).command(message.pool)
        page = await self._context.bus.range(journal_stream(SHARD), subject, state.gate.command, limit=1)
        if not page.messages or page.messages[0].sequence != state.gate.command:
            raise Damaged(f"sequence {message.sequence}: its command is not at {state.gate.command}")
        record = decode(page.messages[0].payload)
        command = read_command(message.pool, record.body)
        return Job(message.ref, state.gate.command, record.digest, command, in_hand.attempt + 1)


def _read(stored: Stored) -> _Message | None:
    """What a message of the pool's consumer is about; None when it asks nothing of an executor."""
    register = parse_register(stored.subject)
    if register.kind == "fx.gate":
        if not isinstance(read_effect(stored), GateDecided):
            return None
        return _Message(stored.sequence, register.ref, register.call, register.pool)
    record = decode(stored.payload)
    command = read_command(register.pool, record.body)
    return _Message(stored.sequence, register.ref, command.call, register.pool, command, record.digest)


def _make_runner(
    context: ServiceContext, agents: AgentDirectory, runtime_for: RuntimeFor, load_pack: Callable[[str], Pack]
) -> Runner:
    identity = context.identity
    committer = Committer(context.bus, journal_stream(SHARD))
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
