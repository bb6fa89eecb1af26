"""One step of a turn: observe, build the request within its budget, call the model, commit what it decided.

A turn ends at a step that asks for no call, at a limit of its agent, or where no model can answer. While a model is called, the
anchor is watched: a cancel, a reset, a deletion or a takeover raises the session's generation, and the answer can no longer be
committed. Then the call is cancelled, which closes its connection, so that the rest of the answer costs nothing.

If a model does not answer, the next one in the agent's list is called, by its own token count and budget. The step's record
names the model that answered, and those that did not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, TypeVar

import structlog
from anchorwatch.context.digest import request_digest
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.anchor import PromptProof, RunOutcome
from anchorwatch.core.emergency import Emergency, OpenEmergency, Sighting, change_of, observed
from anchorwatch.core.errors import AnchorWatchError, Fenced, NotFound, Refused, Unavailable
from anchorwatch.core.facts import Observation
from anchorwatch.core.names import SessionRef
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.apply import asked
from anchorwatch.core.session.commands import CommitStep, EndTurn, NoteEmergency, PlannedCall
from anchorwatch.core.session.cycling import CIRCLES_MAX, circles
from anchorwatch.core.session.decide import decide
from anchorwatch.core.session.events import PlannerEvent, StepHead
from anchorwatch.core.session.goals import goal_of
from anchorwatch.core.session.outcome import judge
from anchorwatch.core.session.spending import used
from anchorwatch.core.session.state import SeenObservation, Turn
from anchorwatch.core.tools import Risk
from anchorwatch.edges import Edge, around
from anchorwatch.journal.register import Register
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.models.port import ContextOverflow, ModelRefused, ModelReply, ModelUnavailable
from anchorwatch.packs.port import JudgesProgress
from anchorwatch.service.context import Clock

from anchorwatch_planner.account import Account, Accounts, BudgetSpent
from anchorwatch_planner.decision import (
    OBSERVATIONS_MAX,
    next_check_ms,
    plan_calls,
    shows_the_same,
    too_old,
    turns_in_circles,
)
from anchorwatch_planner.fitting import Fitted, Fitter, OverBudget
from anchorwatch_planner.runtimes import AgentRuntime, Bounds

Noted = Callable[[AgentRuntime], None]
"""Called with a runtime whose model has answered or failed."""
NextOne = (ModelUnavailable, ModelRefused, ContextOverflow, OverBudget)
"""Failures after which the next model is called."""


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer, its request and its runtime; ``in_vain``: the models before it that are away, each with its error code."""

    fitted: Fitted
    reply: ModelReply
    runtime: AgentRuntime
    in_vain: tuple[tuple[str, str], ...] = ()


def asked_in_vain(answered: Answered) -> dict[str, Any]:
    """The step's record of the list: which model answered and which failed; empty if the first one answered."""
    if not answered.in_vain:
        return {}
    return {"model": answered.runtime.terms.name, "in_vain": [list(each) for each in answered.in_vain]}


def _in_vain(
    runtime: AgentRuntime, answering: AgentRuntime, failed: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """The models that failed, and those before ``answering`` in the agent's list that are skipped since they failed lately."""
    before = takewhile(lambda each: each is not answering, (runtime, *runtime.others))
    skipped = {each.terms.name: each.status.health.code for each in before if each.status.health.code}
    return tuple({**skipped, **failed}.items())


def _models_before(in_vain: Sequence[tuple[str, str]]) -> str:
    """The end of the last model's error message: the models that failed before it."""
    return f"; before it, {', '.join(f'{name} ({code})' for name, code in in_vain)}" if in_vain else ""


class Asker:
    """Calls models, for one step at a time."""

    def __init__(
        self,
        fitter: Fitter,
        accounts: Accounts,
        clock: Clock,
        noted: Noted,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        self._fitter = fitter
        self.accounts = accounts
        self._clock = clock
        self._noted = noted
        self._log = log

    async def ask(
        self, ref: SessionRef, account: Account, runtime: AgentRuntime, observation: Observation
    ) -> Answered:
        """The answer of the first model that gives one.

        Raises:
            ModelUnavailable, ModelRefused, ContextOverflow, OverBudget: of the last model that was called.
            BudgetSpent. Fenced, Unavailable: a compaction or a request could not be recorded.
        """
        waiting = list(runtime.in_turn(self._clock.now_ms()))
        failed: dict[str, str] = {}
        # A model that is skipped for a while is away too.
        away = any(each.model.is_llm for each in runtime.skipped(self._clock.now_ms()))
        each = waiting[0]
        while True:  # until one answers, or the last one raises
            waiting.remove(each)
            try:
                for again in (True, False):
                    fitted = await self._fitter.fit(ref, account, each, observation)
                    reply = await self._complete(ref, account, each, fitted, again=again)
                    if reply is not None:
                        return Answered(fitted, reply, each, _in_vain(runtime, each, failed))
            except NextOne as error:
                self._failed(each, error)
                away = away or isinstance(error, ModelUnavailable | ModelRefused)
                # Rules decide for a model that is away. A request that is too large is for people to see (`over_budget`).
                following = next((later for later in waiting if later.model.is_llm or away), None)
                if following is None:
                    error.message += _models_before(tuple(failed.items()))
                    raise
                failed[each.terms.name] = error.code
                self._log.warning("model.next", session=str(ref), after=each.terms.name, code=error.code)
                each = following

    async def _complete(
        self, ref: SessionRef, account: Account, runtime: AgentRuntime, fitted: Fitted, *, again: bool
    ) -> ModelReply | None:
        """The model's answer. None: the request is too large, and may be sent ``again``, shortened by the count it reported."""
        try:
            reply = await self.accounts.complete(ref, account, runtime, fitted.request, fitted.tokens)
        except ContextOverflow as error:
            if not again:
                raise
            self._log.warning("model.request_too_large", session=str(ref), reason=str(error))
            return None
        self._answered(runtime, fitted, reply)
        return reply

    def _answered(self, runtime: AgentRuntime, fitted: Fitted, reply: ModelReply) -> None:
        if not runtime.model.is_llm:
            return
        before, now_ms = runtime.status.health, self._clock.now_ms()
        runtime.status.health = before.answered(now_ms, fitted.tokens, reply.usage.prompt_tokens)
        self._noted(runtime)

    def _failed(self, runtime: AgentRuntime, error: AnchorWatchError) -> None:
        if isinstance(error, OverBudget | ContextOverflow):
            # A failure of this request, not of the model.
            return
        before, now_ms = runtime.status.health, self._clock.now_ms()
        # A rejected key is a lasting failure; rejected content is not.
        for_good = isinstance(error, ModelRefused) and error.lasting
        runtime.status.health = before.failed(error.code, error.message, now_ms, for_good=for_good)
        if runtime.model.is_llm:
            self._noted(runtime)


OBSERVATION_CHARS_MAX = 16_000
CUT = " [cut: the answer reached its limit of tokens]"


Observe = Callable[[str, str, Iterable[str]], Awaitable[Observation]]
"""(workspace, agent name, names of facts) -> the observation; without an answer these facts are unknown."""


@dataclass(frozen=True, slots=True)
class Decided:
    """A step as a model decided it, and on which observation. ``seen_again_at_ms``: when that was confirmed; 0: it was not."""

    head: StepHead
    calls: tuple[PlannedCall, ...]
    observation: Observation
    seen_again_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Assessment:
    """What a pack makes of an observation: the anchor's facts, whether they show an emergency, and why actions led to nothing."""

    facts: dict[str, Any]
    emergency: Sighting = None
    no_progress: str | None = None


class StepRunner:
    """Runs turns, step by step."""

    def __init__(
        self,
        *,
        sessions: SessionJournal,
        runtime_of: Callable[[str, str], Awaitable[AgentRuntime]],
        observe: Observe,
        asker: Asker,
        execution_id: str,
        clock: Clock,
        bounds: Bounds,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        self._sessions = sessions
        self._runtime_of = runtime_of
        self._observe = observe
        self._execution_id = execution_id
        self._clock = clock
        self._bounds = bounds
        self._log = log
        self._accounts = asker.accounts
        self._asker = asker

    async def agent(self, ref: SessionRef, state: SessionState) -> AgentSpec:
        """The newest version of the session's agent.

        Raises:
            NotFound: its definition does not exist.
        """
        return (await self._runtime(ref, state, newest=True)).agent

    async def observe(self, ref: SessionRef, agent: str, state: SessionState) -> Observation:
        """A fresh observation for an agent, by its name."""
        known = state.anchor.facts if state.anchor else {}
        return shortened(await self._observe(ref.workspace, agent, tuple(known)))

    async def step(
        self, ref: SessionRef, state: SessionState, seen: Observation | None = None
    ) -> SessionState:
        """Run the next step of the turn, or end the turn. ``seen``: an observation made for this step; None: observe here.

        Raises:
            Fenced: another planner holds the session. Refused: it was paused. Unavailable.
        """
        runtime = await self._runtime(ref, state)
        observation = seen or await self.observe(ref, runtime.agent.name, state)
        # Before a model is called: people hear of an emergency also if no model answers (INV-707).
        state = await self._note_emergency(ref, state, runtime, observation)
        turn = state.turn
        if turn is None:
            raise Fenced("the turn has ended")
        account = self._accounts.open(ref, state, observation.at_ms)
        try:
            return await self._step(ref, account, turn, runtime, observation)
        except (Fenced, Refused):
            self._accounts.fenced(ref, account)
            raise

    async def _step(
        self,
        ref: SessionRef,
        account: Account,
        turn: Turn,
        runtime: AgentRuntime,
        observation: Observation,
    ) -> SessionState:
        """As `step`, on account."""

        async def fail(outcome: RunOutcome, reason: str) -> SessionState:
            usage = account.settlement()
            return await self._end(ref, account.state, runtime, observation, outcome, reason, usage=usage)

        if stop := self._at_a_bound(account.state, turn, runtime):
            return await fail(*stop)
        try:
            decided = await self._decide(ref, account, turn, runtime, observation)
        except ModelUnavailable as error:
            return await fail("failed", f"{error.code}: {error}")
        except (Fenced, Unavailable):
            # From the journal: a compaction or a request could not be recorded.
            raise
        except (OverBudget, BudgetSpent, ContextOverflow) as error:
            return await fail("over_budget", str(error))
        except AnchorWatchError as error:
            return await fail("failed", f"{error.code}: {error}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the turn must end
            # A pack or a model that fails in an unexpected way must not hold the session for ever.
            self._log.exception("step.failed", session=str(ref), run=turn.run_id)
            reason = f"fault: {type(error).__name__} while the step was decided; see the planner's log"
            return await fail("failed", reason)
        state, head, calls, observation = account.state, decided.head, decided.calls, decided.observation
        if turns_in_circles(turn, head, calls):
            reason = f"breaker: the model repeats the call {head.rejected[0][1]}"
            return await self._end(ref, state, runtime, observation, "failed", reason, head)
        if not head.calls:
            return await self._finish(ref, state, runtime, observation, head)
        command = CommitStep(self._execution_id, head, calls, decided.seen_again_at_ms)
        return await self._commit(ref, state, command)

    async def _decide(
        self,
        ref: SessionRef,
        account: Account,
        turn: Turn,
        runtime: AgentRuntime,
        observation: Observation,
    ) -> Decided:
        """The model's decision on an observation that is fresh enough to act on, within `OBSERVATIONS_MAX` tries.

        Raises:
            As `Asker.ask`.
        """
        for number in range(1, OBSERVATIONS_MAX + 1):
            answered = await self._ask(ref, account, runtime, observation)
            head, calls = self._decided(turn, observation, answered, account.settlement())
            decided = Decided(head, calls, observation)
            if not too_old(calls, runtime.tools, observation, self._clock.now_ms()):
                break
            now = await self.observe(ref, runtime.agent.name, account.state)
            if shows_the_same(observation, now):
                return replace(decided, seen_again_at_ms=now.at_ms)
            if number < OBSERVATIONS_MAX:
                self._log.info("step.observation_outdated", session=str(ref), run=turn.run_id)
                observation = now
        return decided

    async def _ask(
        self, ref: SessionRef, account: Account, runtime: AgentRuntime, observation: Observation
    ) -> Answered:
        state = account.state
        asking = self._asker.ask(ref, account, runtime, observation)
        if state.anchor is None or not any(each.model.is_llm for each in (runtime, *runtime.others)):
            # Rules answer at once.
            return await asking
        return await while_held(self._sessions, self._clock, ref, state.anchor.generation, asking)

    def _at_a_bound(
        self, state: SessionState, turn: Turn, runtime: AgentRuntime
    ) -> tuple[RunOutcome, str] | None:
        """The outcome and reason of a turn that may not call its model again; None: it may."""
        if len(turn.steps) >= runtime.agent.limits.steps_max:
            return "failed", "the turn reached its limit of steps"
        spent = state.spent.on(self._clock.now_ms())
        reason = self._bounds.spending_of(runtime).exhausted(spent)
        return ("over_budget", reason) if reason else None

    async def _runtime(self, ref: SessionRef, state: SessionState, *, newest: bool = False) -> AgentRuntime:
        if state.anchor is None:
            raise NotFound(f"there is no session {ref.session}")
        name = state.anchor.agent
        return await self._runtime_of(ref.workspace, name.partition("@")[0] if newest else name)

    def _decided(
        self,
        turn: Turn,
        observation: Observation,
        answered: Answered,
        usage: Mapping[str, int],
    ) -> tuple[StepHead, tuple[PlannedCall, ...]]:
        fitted, reply, runtime = answered.fitted, answered.reply, answered.runtime
        proposed = reply.decision.calls
        planned, rejected = plan_calls(proposed, runtime, turn)
        cut = reply.finish == "length" and not proposed
        head = StepHead(
            step=len(turn.steps) + 1,
            text=f"{reply.decision.text}{CUT}" if cut else reply.decision.text,
            observation=SeenObservation(
                observation.digest, observation.at_ms, observation.text, observation.facts
            ),
            prompt=PromptProof(
                anchor_revision=fitted.state.told_sequence,
                anchor_sha256=fitted.state.told_digest,
                sha256=request_digest(fitted.request),
                tokens=fitted.tokens,
                model=reply.model or runtime.model.name,
            ),
            rejected=rejected,
            calls=len(proposed),
            usage=usage,
            context={**fitted.context, **asked_in_vain(answered)},
            joined=tuple(each.sequence for each in fitted.said),
        )
        return head, planned

    def _assess(self, state: SessionState, runtime: AgentRuntime, observation: Observation) -> Assessment:
        """What the pack makes of this observation. If the pack fails, the facts are unchanged, and show nothing."""
        before, pack = state.anchor.facts if state.anchor else {}, runtime.pack
        try:
            facts = pack.reduce(before, observation)
            seen = pack.emergency(facts)
            # A sighting of another form fails here, not in a write.
            observed(None, seen, observation.at_ms)
            return Assessment(
                facts, seen, pack.no_progress(facts) if isinstance(pack, JudgesProgress) else None
            )
        except Exception:  # noqa: BLE001 - as above
            self._log.exception("pack.assessment_failed", pack=pack.name)
            return Assessment(dict(before))

    async def _note_emergency(
        self, ref: SessionRef, state: SessionState, runtime: AgentRuntime, observation: Observation
    ) -> SessionState:
        """Record that this observation raises, changes or ends an emergency; the state is unchanged if it does not."""
        seen = self._assess(state, runtime, observation).emergency
        before = state.anchor.emergency if state.anchor else None
        change = change_of(before, observed(before, seen, observation.at_ms))
        if change is None:
            return state
        what = seen.what if isinstance(seen, Emergency) else ""
        self._log.warning("emergency.observed", session=str(ref), change=change, what=what)
        command = NoteEmergency(self._execution_id, seen, observation.at_ms, self._clock.now_ms())
        return await self._commit(ref, state, command)

    async def _finish(
        self,
        ref: SessionRef,
        state: SessionState,
        runtime: AgentRuntime,
        observation: Observation,
        head: StepHead,
    ) -> SessionState:
        """The model asked for no call: judge the outcome of the turn."""
        turn = state.turn
        if turn is None:
            raise Fenced("the turn has ended")
        shown = self._assess(state, runtime, observation)
        before = state.anchor.emergency if state.anchor else None
        emergency = _described(shown.emergency, observed(before, shown.emergency, observation.at_ms))
        acting = frozenset(
            tool.name for tool in runtime.tools if tool.mutating and tool.risk is not Risk.NONE
        )
        outcome, reason = judge(turn, emergency, acting, shown.no_progress)
        count = circles(state, acting)
        if outcome == "success" and count >= CIRCLES_MAX:
            outcome, reason = (
                "unresolved",
                f"the same decision on the same observation, {count} turns in a row: {reason}",
            )
        return await self._end(ref, state, runtime, observation, outcome, reason, head)

    async def _end(
        self,
        ref: SessionRef,
        state: SessionState,
        runtime: AgentRuntime,
        observation: Observation,
        outcome: RunOutcome,
        reason: str,
        head: StepHead | None = None,
        usage: Mapping[str, int] | None = None,
    ) -> SessionState:
        """End the turn with its last step, or with the ``usage`` of model calls that gave none."""
        # The observation of a decision that was repeated is newer than that of the step.
        state = await self._note_emergency(ref, state, runtime, observation)
        now_ms = self._clock.now_ms()
        shown = self._assess(state, runtime, observation)
        spent = asked(state, head).spent if head else state.spent.with_call(used(usage or {}), now_ms)
        warning = self._bounds.spending_of(runtime).warning(spent)
        command = EndTurn(
            execution_id=self._execution_id,
            outcome=outcome,
            reason=reason,
            facts=shown.facts,
            next_check_at_ms=next_check_ms(state, outcome, self._bounds.heartbeat_of(runtime), now_ms),
            head=head,
            prompt=head.prompt if head else None,
            at_ms=now_ms,
            warning=warning,
            goal_facts=_goal_facts(state, {**shown.facts, **observation.facts}),
            seen=shown.emergency,
            seen_at_ms=observation.at_ms,
            usage=usage or {},
        )
        return await self._commit(ref, state, command)

    async def _commit(
        self, ref: SessionRef, state: SessionState, command: CommitStep | NoteEmergency | EndTurn
    ) -> SessionState:
        """Commit. If a control wrote first and this process still holds the turn, decide again on the new state."""
        edge = _EDGES[type(command)]
        known, fenced = state, False

        async def load() -> SessionState:
            return await self._sessions.load(ref, known.head, known) if fenced else known

        async def append(before: SessionState, events: Sequence[PlannerEvent]) -> SessionState:
            nonlocal known, fenced
            known, fenced = before, True
            with around(edge):
                return await self._sessions.append(ref, before, events, self._clock.now_ms())

        return await Register(str(ref), load, append).change(lambda before: decide(before, command) or None)


_EDGES = {
    CommitStep: Edge.PLANNER_STEP_BEFORE,
    NoteEmergency: Edge.PLANNER_EMERGENCY_BEFORE,
    EndTurn: Edge.PLANNER_END_BEFORE,
}


def _described(seen: Sighting, emergency: OpenEmergency | None) -> str | None:
    """The open emergency, for the reason of an outcome."""
    if emergency is None:
        return None
    return emergency.what if seen else f"{emergency.what}, as last seen at {emergency.last_seen_at}"


def _goal_facts(state: SessionState, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts that the session's objectives compare with numbers."""
    goals = [goal_of(text) for text in state.anchor.objectives] if state.anchor else []
    return {goal.fact: facts.get(goal.fact) for goal in goals if goal}


def shortened(observation: Observation) -> Observation:
    """The observation as prompts and records hold it, so that the request can be rebuilt from the record."""
    text = observation.text
    if len(text) <= OBSERVATION_CHARS_MAX:
        return observation
    rest = len(text) - OBSERVATION_CHARS_MAX
    return replace(observation, text=f"{text[:OBSERVATION_CHARS_MAX]}\n(cut: {rest} more characters)")


WATCH_S = 0.5
"""How often the anchor is read meanwhile."""
T = TypeVar("T")


async def while_held(
    sessions: SessionJournal, clock: Clock, ref: SessionRef, generation: int, work: Coroutine[Any, Any, T]
) -> T:
    """The result of ``work``, which is cancelled when the session's generation changes.

    Raises:
        Fenced: it was cancelled. Whatever ``work`` raises.
    """
    working = asyncio.create_task(work, name=f"model of {ref}")
    watching = asyncio.create_task(_lost(sessions, clock, ref, generation), name=f"hold on {ref}")
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
    finally:
        working.cancel()
        watching.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)
    raise Fenced(f"this planner no longer holds the turn of {ref}; its call to the model was cancelled")


async def _lost(sessions: SessionJournal, clock: Clock, ref: SessionRef, generation: int) -> None:
    """Return once the turn is no longer held."""
    while True:
        await clock.sleep(WATCH_S)
        try:
            anchor, _ = await sessions.read_anchor(ref)
        except NotFound:
            return
        except AnchorWatchError:
            # It cannot be read now; the fence of the next record decides.
            continue
        if anchor.generation != generation:
            return
