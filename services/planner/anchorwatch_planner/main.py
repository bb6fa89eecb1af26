"""The planner service: durable consumers on the journal and the ticks, one actor for each session, and a sweep."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from anchorwatch.bus.port import ConsumerSpec, Delivery, Stored
from anchorwatch.codec import decode
from anchorwatch.core.errors import AnchorWatchError, Damaged
from anchorwatch.core.letters import DeadLetter
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.models import registry as models
from anchorwatch.models.tokens import load_counter
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.intake import Intake
from anchorwatch.service.keepalive import ACK_WAIT_S, KeepAlive
from anchorwatch.service.leases import Leases
from anchorwatch.service.letters import DeadLetters
from anchorwatch.service.retries import DeadLetterRetrier
from anchorwatch.service.worker import Result
from anchorwatch.topology.streams import TICKS, journal_stream
from anchorwatch.topology.subjects import (
    ANCHOR,
    CONTROL,
    DONE,
    EFFECT,
    GATE,
    INPUT,
    SCHEDULE,
    SLOT_FIRED,
    TICK_FIRED,
    parse_register,
)

from anchorwatch_planner.actor import Actors
from anchorwatch_planner.clerk import Clerk
from anchorwatch_planner.corrections import Corrections
from anchorwatch_planner.evidence import Cause, CauseKind
from anchorwatch_planner.minds import Build, Minds
from anchorwatch_planner.slots import Slots
from anchorwatch_planner.sweep import sessions_known, sweep
from anchorwatch_planner.switchboard import Switchboard
from anchorwatch_planner.troubles import SERVICE, Troubles
from anchorwatch_planner.wiring import SHARD, Wired, wire

BATCH = 32
CONCURRENCY, CONCURRENCY_OF_WORKSPACE = 80, 64
DEFINITION_AGE_S_MAX = 0.25
"""A new version of an agent counts for every turn that begins this long after it was applied, or later."""
_ANSWERS = (
    INPUT.filter(shard=SHARD),
    EFFECT.filter(shard=SHARD, register=DONE),
    EFFECT.filter(shard=SHARD, register=GATE),
)
WAKES = ConsumerSpec(
    journal_stream(SHARD),
    # The anchors themselves are mostly written by planners.
    (*_ANSWERS, CONTROL.filter(shard=SHARD)),
    "planner",
    ack_wait_s=ACK_WAIT_S,
    ack_pending_max=1_000,
    filters_before=(*_ANSWERS, ANCHOR.filter(shard=SHARD)),
)
FALLEN_DUE = ConsumerSpec(TICKS, (TICK_FIRED.filter(),), "planner-ticks", ack_wait_s=ACK_WAIT_S)
SCHEDULES = ConsumerSpec(
    journal_stream(SHARD), (SCHEDULE.filter(shard=SHARD),), "planner-schedules", ack_wait_s=ACK_WAIT_S
)
SLOTS = ConsumerSpec(TICKS, (SLOT_FIRED.filter(),), "planner-slots", ack_wait_s=ACK_WAIT_S)
CAUSES: dict[str, CauseKind] = {"in": "in", "fx.done": "done", "fx.gate": "gate", "ctl": "control"}


async def run(context: ServiceContext, build: Build | None = None) -> None:
    """Plan until told to stop. ``build`` makes the model of an agent, in place of those that are known."""
    directory = await AgentDirectory.open(context.bus)
    build = build or models.build
    corrections = await Corrections.open(context.bus, context.log)
    find = partial(directory.get, age_max_s=DEFINITION_AGE_S_MAX)
    minds = Minds(find, context.settings, build, corrections.following)
    in_hand = KeepAlive()
    switches = Switchboard(context.bus, context.clock, context.log)
    await switches.read()
    wired = wire(context, directory, minds, build, switches, corrections)
    letters = DeadLetters(context)
    troubles = Troubles(context, letters, wired.sessions, wired.windows)
    share = Slots(CONCURRENCY, CONCURRENCY_OF_WORKSPACE)
    actors = Actors(wired.looker.look, context.log, in_hand, slots=share, troubles=troubles)
    retrier = DeadLetterRetrier(context, letters, Retries(troubles, actors), SERVICE, f"dead-{SERVICE}")
    clerk = Clerk(wired.timetable, in_hand, context.log)
    intakes = [Intake(context.bus, spec, context.stopping) for spec in (WAKES, FALLEN_DUE, SCHEDULES, SLOTS)]
    wakes, ticks, schedules, slots = intakes
    for intake in intakes:
        await intake.open()
    answering = await wired.answers.listen()
    # Here, so that no session waits for it in its first turn.
    load_counter()
    context.ready.set()
    try:
        async with asyncio.TaskGroup() as tasks:
            keeping = tasks.create_task(in_hand.run(), name="keep")
            sweeping = tasks.create_task(_sweep(context, actors, troubles, wired), name="sweep")
            following = tasks.create_task(
                switches.follow(lambda: _released(context, actors)), name="switches"
            )
            tasks.create_task(retrier.run(), name="letters")
            tasks.create_task(_take(context, wakes, lambda delivery: _post_wake(actors, delivery)))
            tasks.create_task(_take(context, ticks, lambda delivery: _post_tick(actors, delivery)))
            tasks.create_task(clerk.take(context.stopping, schedules), name="schedules")
            tasks.create_task(clerk.take(context.stopping, slots), name="slots")
            await context.stopping.wait()
            keeping.cancel()
            sweeping.cancel()
            following.cancel()
    finally:
        await answering.close()
        await actors.close()
        for intake in intakes:
            await intake.close()
        await minds.close()
        await corrections.close()


async def _released(context: ServiceContext, actors: Actors) -> None:
    """A kill switch was turned off: what waited for it is looked at."""
    await sweep(await sessions_known(context.bus), actors, starting=True)


class Retries:
    """The letters of sessions, for `DeadLetterRetrier`."""

    def __init__(self, troubles: Troubles, actors: Actors) -> None:
        self._troubles = troubles
        self._actors = actors

    async def take_up(self, letter: DeadLetter) -> Result:
        """Look at the session once more."""
        return await self._troubles.take_up(letter, self._actors.post, self._actors.rest)

    async def settle(self, letter: DeadLetter) -> None:
        """Its inputs wait in the journal, and it is looked at again at each sweep."""


async def _take(context: ServiceContext, intake: Intake, post: Callable[[Delivery], Awaitable[None]]) -> None:
    while not context.stopping.is_set():
        for delivery in await intake.next(BATCH):
            await post(delivery)


async def _post_wake(actors: Actors, delivery: Delivery) -> None:
    stored = delivery.stored
    register = parse_register(stored.subject)
    # Filters of before may have left something else in hand: a look does no harm.
    kind = CAUSES.get(register.kind, "control")
    if kind == "control" and _resumes(stored):
        kind = "resumed"
    cause = Cause(kind, stored.sequence, delivery.attempt, stored)
    await actors.post(register.ref, cause, delivery)


def _resumes(stored: Stored) -> bool:
    try:
        return Kind.RESUMED in decode(stored.payload).body.get("kinds", ())
    except Damaged:
        # Looking at the session says what is wrong with it.
        return False


async def _post_tick(actors: Actors, delivery: Delivery) -> None:
    tokens = TICK_FIRED.parse(delivery.stored.subject)
    if tokens is None:
        await delivery.ack()
        return
    ref = SessionRef(tokens["workspace"], tokens["session"], tokens["shard"])
    await actors.post(ref, Cause("tick", 0, delivery.attempt, rang_ms=delivery.stored.time_ms), delivery)


async def _sweep(context: ServiceContext, actors: Actors, troubles: Troubles, wired: Wired) -> None:
    monotonic = asyncio.get_running_loop().time
    leases = Leases(context.bus, context.identity, context.settings.lease_s, monotonic=monotonic)
    first = True
    while True:
        try:
            await troubles.refresh()
            for ref in troubles.known():
                if not actors.busy(ref):
                    await actors.post(ref, Cause("retry"))
            # No other may go on with these, and what was to wake this process may have gone to one that let it go.
            await sweep(wired.cache.held(), actors, starting=False)
            if first or await leases.hold("sweep"):
                refs = await sessions_known(context.bus)
                await wired.timetable.sweep(sorted({ref.workspace for ref in refs}))
                await sweep(refs, actors, starting=first)
            first = False
        except AnchorWatchError as error:
            context.log.warning("sweep failed, will sweep again", code=error.code, why=str(error))
        await context.clock.sleep(context.settings.sweep_s)
