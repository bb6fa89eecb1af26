"""What a planner is made of, put together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from anchorwatch.core.agents import OPENAI, RULES
from anchorwatch.core.facts import Observation
from anchorwatch.core.session.spending import Prices
from anchorwatch.core.session.wakes import Windows
from anchorwatch.journal.paces import PaceJournal
from anchorwatch.journal.schedules import ScheduleJournal
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.models import catalog
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.journal_guard import JournalGuard
from anchorwatch.service.observations import observe

from anchorwatch_planner.asking import Asker
from anchorwatch_planner.cache import Cache
from anchorwatch_planner.doubt import DoubtingLooker
from anchorwatch_planner.fitting import Fitter
from anchorwatch_planner.limits import Limits
from anchorwatch_planner.look import Looker, Parts
from anchorwatch_planner.rpc import ModelList, PlannerRpc
from anchorwatch_planner.runtimes import AgentRuntime, AgentRuntimes, Bounds, Build, ModelRecords, ModelTerms
from anchorwatch_planner.schedules import ScheduleRunner
from anchorwatch_planner.step import StepRunner
from anchorwatch_planner.switches import KillSwitches
from anchorwatch_planner.wakeups import WakeupTimers

SHARD = "0"
SESSIONS_CACHED = 2_000


@dataclass(frozen=True, slots=True)
class Wired:
    """What looks at sessions, and at schedules, and what answers questions about sessions."""

    looker: DoubtingLooker
    cache: Cache
    answers: PlannerRpc
    sessions: SessionJournal
    timetable: ScheduleRunner
    windows: Windows


def wire(
    context: ServiceContext,
    directory: AgentDirectory,
    runtimes: AgentRuntimes,
    build: Build,
    switches: KillSwitches,
    corrections: ModelRecords,
) -> Wired:
    """A planner's parts. ``build`` makes the model of an agent."""
    settings, bus, identity, clock = context.settings, context.bus, context.identity, context.clock
    committer = context.committer
    sessions = SessionJournal(bus, committer, identity.execution_id)
    prices = Prices(settings.price_prompt, settings.price_completion)
    bounds = Bounds(settings.heartbeat_s, settings.model_timeout_s, settings.context_tokens_max, prices)
    fitter = Fitter(sessions, identity.execution_id, clock, bounds, context.log)

    async def see(workspace: str, agent: str, names: Iterable[str]) -> Observation:
        return await observe(bus, workspace, agent, now_ms=clock.now_ms(), names=names)

    def other_model(runtime: AgentRuntime, name: str) -> AgentRuntime:
        if name == RULES or name in catalog.names(settings):
            model = build(settings, runtime.agent.model_copy(update={"model": name}), runtime.pack)
        else:
            # One that no file names is asked of the endpoint of the settings.
            other = settings.model_copy(update={"model_name": name})
            model = build(other, runtime.agent.model_copy(update={"model": OPENAI}), runtime.pack)
        return replace(runtime, model=model, terms=ModelTerms(name), others=())

    thinker = StepRunner(
        sessions=sessions,
        runtime_of=runtimes.of,
        observe=see,
        asker=Asker(fitter, bounds, clock, corrections.note, context.log),
        execution_id=identity.execution_id,
        clock=clock,
        bounds=bounds,
        log=context.log,
    )
    windows = Windows(round(settings.debounce_p0_s * 1000), round(settings.debounce_p1_s * 1000))
    timers = WakeupTimers(bus, clock)
    paces = PaceJournal(bus, committer.stream, identity.execution_id)
    cache = Cache(SESSIONS_CACHED, identity.execution_id)
    parts = Parts(
        sessions=sessions,
        committer=committer,
        cache=cache,
        timers=timers,
        thinker=thinker,
        peers=context.peers,
        identity=identity,
        clock=clock,
        limits=Limits(settings, windows, thinker.agent, paces),
        switches=switches,
        guard=JournalGuard(bus, committer.stream, clock, context.log),
        log=context.log,
    )
    answers = PlannerRpc(
        bus=bus,
        sessions=sessions,
        fitter=fitter,
        bounds=bounds,
        runtime_of=runtimes.of,
        other_model=other_model,
        models=ModelList(directory, runtimes.of, corrections, bounds).of,
        observe=see,
        clock=clock,
        log=context.log,
    )
    looker = DoubtingLooker(Looker(parts), bus, committer, identity, clock, context.log)
    journal = ScheduleJournal(bus, committer, identity.execution_id)
    timetable = ScheduleRunner(journal, sessions, timers, identity, clock, context.log)
    return Wired(looker, cache, answers, sessions, timetable, windows)
