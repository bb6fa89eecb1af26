"""The planner service: its parts, its workers, and the order in which they start and stop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from anchorwatch.core.agents import OPENAI, RULES
from anchorwatch.core.facts import Observation
from anchorwatch.core.letters import DeadLetter
from anchorwatch.core.session.spending import Prices
from anchorwatch.core.session.wakes import Windows
from anchorwatch.journal.paces import PaceJournal
from anchorwatch.journal.schedules import ScheduleJournal
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.models import catalog
from anchorwatch.models import registry as models
from anchorwatch.models.tokens import load_counter
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.journal_guard import JournalGuard
from anchorwatch.service.letters import DeadLetters
from anchorwatch.service.observations import observe
from anchorwatch.service.retries import DeadLetterRetrier
from anchorwatch.service.worker import Result, Worker

from anchorwatch_planner.account import Accounts
from anchorwatch_planner.failures import SERVICE, SessionFailures
from anchorwatch_planner.fitting import Fitter
from anchorwatch_planner.limits import Limits
from anchorwatch_planner.mailbox import FairSemaphore, Mailboxes
from anchorwatch_planner.rpc import ModelList, PlannerRpc
from anchorwatch_planner.runtimes import AgentRuntime, AgentRuntimes, Bounds, Build, ModelRecords, ModelTerms
from anchorwatch_planner.schedules import ScheduleRunner
from anchorwatch_planner.sessions import StateCache
from anchorwatch_planner.step import Asker, StepRunner
from anchorwatch_planner.sweep import sweep_all, sweep_for_ever
from anchorwatch_planner.switches import KillSwitches
from anchorwatch_planner.turn import Parts, TurnPlanner
from anchorwatch_planner.wakeups import WakeupTimers
from anchorwatch_planner.workers import SCHEDULES, SLOTS, TICKS_FIRED, WAKES, ScheduleConsumer, WakeWorker

PASSES, PASSES_OF_WORKSPACE = 80, 64
SESSIONS_CACHED = 2_000
DEFINITION_AGE_S_MAX = 0.25
"""A new version of an agent applies to every turn that starts this long after it was stored, or later."""


async def run(context: ServiceContext, build: Build | None = None) -> None:
    """Plan until the service stops. ``build`` makes the model of an agent; None: as the registry does."""
    directory = await AgentDirectory.open(context.bus)
    build = build or models.build
    records = await ModelRecords.open(context.bus, context.log)
    find = partial(directory.get, age_max_s=DEFINITION_AGE_S_MAX)
    runtimes = AgentRuntimes(find, context.settings, build, records.following)
    switches = KillSwitches(context.bus, context.clock, context.log)
    await switches.read()
    wired = _wire(context, directory, runtimes, build, switches, records)
    letters = DeadLetters(context)
    failures = SessionFailures(context, letters, wired.sessions, wired.windows)
    mailboxes = Mailboxes(
        wired.planner.plan,
        context.log,
        slots=FairSemaphore(PASSES, PASSES_OF_WORKSPACE),
        random=context.random,
        failures=failures,
    )
    retries = Retries(failures, mailboxes)
    retrier = DeadLetterRetrier(context, letters, retries, SERVICE, f"dead-{SERVICE}")
    workers: tuple[Worker[Any], ...] = (
        WakeWorker(context, WAKES, mailboxes),
        WakeWorker(context, TICKS_FIRED, mailboxes),
        ScheduleConsumer(context, SCHEDULES, wired.schedules),
        ScheduleConsumer(context, SLOTS, wired.schedules),
    )
    for worker in workers:
        await worker.intake.open()
    listening = await wired.rpc.listen()
    # Loaded here, so that no session waits for it in its first turn.
    load_counter()
    context.ready.set()
    try:
        async with asyncio.TaskGroup() as tasks:
            sweeping = tasks.create_task(
                sweep_for_ever(context, mailboxes, failures, wired.cache, wired.schedules), name="sweep"
            )
            # Sessions that a kill switch held get a pass when it is turned off.
            following = tasks.create_task(
                switches.follow(lambda: sweep_all(context.bus, mailboxes)), name="switches"
            )
            tasks.create_task(retrier.run(), name="letters")
            for worker in workers:
                tasks.create_task(worker.run(), name=worker.name)
            await context.stopping.wait()
            sweeping.cancel()
            following.cancel()
    finally:
        await listening.close()
        await mailboxes.close()
        for worker in workers:
            await worker.intake.close()
        await runtimes.close()
        await records.close()


class Retries:
    """The dead letters of sessions, for `DeadLetterRetrier`."""

    def __init__(self, failures: SessionFailures, mailboxes: Mailboxes) -> None:
        self._failures = failures
        self._mailboxes = mailboxes

    async def take_up(self, letter: DeadLetter) -> Result:
        """Retry the session."""
        return await self._failures.take_up(letter, self._mailboxes.post, self._mailboxes.wait_for)

    async def settle(self, letter: DeadLetter) -> None:
        """Nothing to do: the inputs wait in the journal, and each sweep retries the session."""


@dataclass(frozen=True, slots=True)
class _Wired:
    planner: TurnPlanner
    cache: StateCache
    rpc: PlannerRpc
    sessions: SessionJournal
    schedules: ScheduleRunner
    windows: Windows


def _wire(
    context: ServiceContext,
    directory: AgentDirectory,
    runtimes: AgentRuntimes,
    build: Build,
    switches: KillSwitches,
    records: ModelRecords,
) -> _Wired:
    settings, bus, identity, clock = context.settings, context.bus, context.identity, context.clock
    committer = context.committer
    sessions = SessionJournal(bus, committer, identity.execution_id)
    prices = Prices(settings.price_prompt, settings.price_completion)
    bounds = Bounds(settings.heartbeat_s, settings.model_timeout_s, settings.context_tokens_max, prices)
    accounts = Accounts(sessions, identity.execution_id, clock, bounds)
    fitter = Fitter(sessions, identity.execution_id, clock, bounds, accounts, context.log)

    async def see(workspace: str, agent: str, names: Iterable[str]) -> Observation:
        return await observe(bus, workspace, agent, now_ms=clock.now_ms(), names=names)

    def other_model(runtime: AgentRuntime, name: str) -> AgentRuntime:
        if name == RULES or name in catalog.names(settings):
            model = build(settings, runtime.agent.model_copy(update={"model": name}), runtime.pack)
        else:
            # A model that no file names is called at the endpoint of the settings.
            other = settings.model_copy(update={"model_name": name})
            model = build(other, runtime.agent.model_copy(update={"model": OPENAI}), runtime.pack)
        return replace(runtime, model=model, terms=ModelTerms(name), others=())

    steps = StepRunner(
        sessions=sessions,
        runtime_of=runtimes.of,
        observe=see,
        asker=Asker(fitter, accounts, clock, records.note, context.log),
        execution_id=identity.execution_id,
        clock=clock,
        bounds=bounds,
        log=context.log,
    )
    windows = Windows(round(settings.debounce_p0_s * 1000), round(settings.debounce_p1_s * 1000))
    timers = WakeupTimers(bus, clock)
    paces = PaceJournal(bus, committer.stream, identity.execution_id)
    cache = StateCache(SESSIONS_CACHED, identity.execution_id)
    parts = Parts(
        bus=bus,
        sessions=sessions,
        committer=committer,
        cache=cache,
        timers=timers,
        steps=steps,
        peers=context.peers,
        identity=identity,
        clock=clock,
        limits=Limits(settings, windows, steps.agent, paces),
        switches=switches,
        guard=JournalGuard(bus, committer.stream, clock, context.log),
        log=context.log,
    )
    rpc = PlannerRpc(
        bus=bus,
        sessions=sessions,
        fitter=fitter,
        bounds=bounds,
        runtime_of=runtimes.of,
        other_model=other_model,
        models=ModelList(directory, runtimes.of, records, bounds).of,
        observe=see,
        clock=clock,
        log=context.log,
    )
    journal = ScheduleJournal(bus, committer, identity.execution_id)
    schedules = ScheduleRunner(journal, sessions, timers, identity, clock, context.log)
    return _Wired(TurnPlanner(parts), cache, rpc, sessions, schedules, windows)
