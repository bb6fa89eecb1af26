"""The planner service: durable consumers on the journal and the ticks, one mailbox for each session, and a sweep."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.core.letters import DeadLetter
from anchorwatch.models import registry as models
from anchorwatch.models.tokens import load_counter
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.leases import Leases
from anchorwatch.service.letters import DeadLetters
from anchorwatch.service.retries import DeadLetterRetrier
from anchorwatch.service.worker import Result, Worker

from anchorwatch_planner.evidence import Cause
from anchorwatch_planner.mailbox import Mailboxes
from anchorwatch_planner.runtimes import AgentRuntimes, Build, ModelRecords
from anchorwatch_planner.slots import Slots
from anchorwatch_planner.sweep import sessions_known, sweep
from anchorwatch_planner.switches import KillSwitches
from anchorwatch_planner.troubles import SERVICE, Troubles
from anchorwatch_planner.wiring import Wired, wire
from anchorwatch_planner.workers import FALLEN_DUE, SCHEDULES, SLOTS, WAKES, ScheduleWorker, WakeWorker

CONCURRENCY, CONCURRENCY_OF_WORKSPACE = 80, 64
DEFINITION_AGE_S_MAX = 0.25
"""A new version of an agent counts for every turn that begins this long after it was applied, or later."""


async def run(context: ServiceContext, build: Build | None = None) -> None:
    """Plan until told to stop. ``build`` makes the model of an agent, in place of those that are known."""
    directory = await AgentDirectory.open(context.bus)
    build = build or models.build
    corrections = await ModelRecords.open(context.bus, context.log)
    find = partial(directory.get, age_max_s=DEFINITION_AGE_S_MAX)
    runtimes = AgentRuntimes(find, context.settings, build, corrections.following)
    switches = KillSwitches(context.bus, context.clock, context.log)
    await switches.read()
    wired = wire(context, directory, runtimes, build, switches, corrections)
    letters = DeadLetters(context)
    troubles = Troubles(context, letters, wired.sessions, wired.windows)
    share = Slots(CONCURRENCY, CONCURRENCY_OF_WORKSPACE)
    mailboxes = Mailboxes(
        wired.looker.look, context.log, slots=share, random=context.random, troubles=troubles
    )
    retrier = DeadLetterRetrier(context, letters, Retries(troubles, mailboxes), SERVICE, f"dead-{SERVICE}")
    workers: tuple[Worker[Any], ...] = (
        WakeWorker(context, WAKES, mailboxes),
        WakeWorker(context, FALLEN_DUE, mailboxes),
        ScheduleWorker(context, SCHEDULES, wired.timetable),
        ScheduleWorker(context, SLOTS, wired.timetable),
    )
    for worker in workers:
        await worker.intake.open()
    answering = await wired.answers.listen()
    # Here, so that no session waits for it in its first turn.
    load_counter()
    context.ready.set()
    try:
        async with asyncio.TaskGroup() as tasks:
            sweeping = tasks.create_task(_sweep(context, mailboxes, troubles, wired), name="sweep")
            following = tasks.create_task(
                switches.follow(lambda: _released(context, mailboxes)), name="switches"
            )
            tasks.create_task(retrier.run(), name="letters")
            for worker in workers:
                tasks.create_task(worker.run(), name=worker.name)
            await context.stopping.wait()
            sweeping.cancel()
            following.cancel()
    finally:
        await answering.close()
        await mailboxes.close()
        for worker in workers:
            await worker.intake.close()
        await runtimes.close()
        await corrections.close()


async def _released(context: ServiceContext, mailboxes: Mailboxes) -> None:
    """A kill switch was turned off: what waited for it is looked at."""
    await sweep(await sessions_known(context.bus), mailboxes, starting=True)


class Retries:
    """The letters of sessions, for `DeadLetterRetrier`."""

    def __init__(self, troubles: Troubles, mailboxes: Mailboxes) -> None:
        self._troubles = troubles
        self._mailboxes = mailboxes

    async def take_up(self, letter: DeadLetter) -> Result:
        """Look at the session once more."""
        return await self._troubles.take_up(letter, self._mailboxes.post, self._mailboxes.rest)

    async def settle(self, letter: DeadLetter) -> None:
        """Its inputs wait in the journal, and it is looked at again at each sweep."""


async def _sweep(context: ServiceContext, mailboxes: Mailboxes, troubles: Troubles, wired: Wired) -> None:
    monotonic = asyncio.get_running_loop().time
    leases = Leases(context.bus, context.identity, context.settings.lease_s, monotonic=monotonic)
    first = True
    while True:
        try:
            await troubles.refresh()
            for ref in troubles.known():
                if not mailboxes.busy(ref):
                    mailboxes.post(ref, Cause("retry"))
            # No other may go on with these, and what was to wake this process may have gone to one that let it go.
            await sweep(wired.cache.held(), mailboxes, starting=False)
            if first or await leases.hold("sweep"):
                refs = await sessions_known(context.bus)
                await wired.timetable.sweep(sorted({ref.workspace for ref in refs}))
                await sweep(refs, mailboxes, starting=first)
            first = False
        except AnchorWatchError as error:
            context.log.warning("sweep failed, will sweep again", code=error.code, why=str(error))
        await context.clock.sleep(context.settings.sweep_s)
