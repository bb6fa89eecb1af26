"""One step of a turn: observe, build the request within its budget, ask the model, commit what it decided."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog
from anchorwatch.context.digest import request_digest
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.anchor import PromptProof, RunOutcome
from anchorwatch.core.errors import AnchorWatchError, Fenced, NotFound, Unavailable
from anchorwatch.core.facts import Observation
from anchorwatch.core.names import SessionRef
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.apply import asked
from anchorwatch.core.session.commands import CommitStep, EndTurn, PlannedCall
from anchorwatch.core.session.cycling import CIRCLES_MAX, circles
from anchorwatch.core.session.decide import decide
from anchorwatch.core.session.events import StepHead
from anchorwatch.core.session.outcome import judge
from anchorwatch.core.session.state import SeenObservation, Turn
from anchorwatch.core.tools import Risk
from anchorwatch.edges import Edge, reached
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.models.port import ContextOverflow, ModelUnavailable
from anchorwatch.service.context import Clock

from anchorwatch_planner.asking import Answered, Asker, asked_in_vain
from anchorwatch_planner.fitting import OverBudget
from anchorwatch_planner.freshness import LOOKS_MAX, shows_the_same, together, too_old
from anchorwatch_planner.holding import while_held
from anchorwatch_planner.mind import Bounds, Mind
from anchorwatch_planner.pace import next_check_ms
from anchorwatch_planner.planning import plan_calls, turns_in_circles

REBASES_MAX = 5
OBSERVATION_CHARS_MAX = 16_000
STEP_EDGES = (Edge.PLANNER_STEP_BEFORE, Edge.PLANNER_STEP_AFTER)
END_EDGES = (Edge.PLANNER_END_BEFORE, Edge.PLANNER_END_AFTER)
CUT = " [cut: the answer reached its limit of tokens]"


Observe = Callable[[str, str, Iterable[str]], Awaitable[Observation]]
"""Looks for (workspace, agent name); the facts named are unknown when nobody answers."""


@dataclass(frozen=True, slots=True)
class Decided:
    """A step as a model decided it, and on what. ``seen_again_at_ms``: when that was seen to be still so; 0: it was not asked."""

    state: SessionState
    head: StepHead
    calls: tuple[PlannedCall, ...]
    observation: Observation
    seen_again_at_ms: int = 0


class Thinker:
    """Takes turns further, step by step."""

    def __init__(
        self,
        *,
        sessions: SessionJournal,
        mind_of: Callable[[str, str], Awaitable[Mind]],
        observe: Observe,
        asker: Asker,
        execution_id: str,
        clock: Clock,
        bounds: Bounds,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        self._sessions = sessions
        self._mind_of = mind_of
        self._observe = observe
        self._execution_id = execution_id
        self._clock = clock
        self._bounds = bounds
        self._log = log
        self._asker = asker

    async def agent(self, ref: SessionRef, state: SessionState) -> AgentSpec:
        """The newest version of the session's agent.

        Raises:
            NotFound: its definition is not there.
        """
        return (await self._mind(ref, state, newest=True)).agent

    async def observe(self, ref: SessionRef, agent: str, state: SessionState) -> Observation:
        """How the world is for an agent, by its name; looked at after this was called."""
        known = state.anchor.facts if state.anchor else {}
        return shortened(await self._observe(ref.workspace, agent, tuple(known)))

    async def step(
        self, ref: SessionRef, state: SessionState, seen: Observation | None = None
    ) -> SessionState:
        """Take the running turn one step further, or to its end. ``seen``: an observation made for this step.

        Raises:
            Fenced: somebody else holds the session. Refused: it was paused. Unavailable.
        """
        turn = state.turn
        if turn is None:
            raise Fenced("the turn has ended")
        mind = await self._mind(ref, state)
        observation = seen or await self.observe(ref, mind.agent.name, state)
        if stop := self._at_a_bound(state, turn, mind):
            return await self._end(ref, state, mind, observation, *stop)
        try:
            decided = await self._decide(ref, state, turn, mind, observation)
        except ModelUnavailable as error:
            return await self._end(ref, state, mind, observation, "failed", f"{error.code}: {error}")
        except (Fenced, Unavailable):
            # Of the journal: a compaction could not be recorded.
            raise
        except (OverBudget, ContextOverflow) as error:
            return await self._end(ref, state, mind, observation, "over_budget", str(error))
        except AnchorWatchError as error:
            return await self._end(ref, state, mind, observation, "failed", f"{error.code}: {error}")
        except Exception as error:  # noqa: BLE001 - whatever it is, the turn must end
            # A pack or a model that fails in its own way must not hold the session for ever.
            self._log.exception("the step could not be decided", session=str(ref), run=turn.run_id)
            reason = f"fault: {type(error).__name__} while the step was decided; the planner's log says more"
            return await self._end(ref, state, mind, observation, "failed", reason)
        state, head, calls, observation = decided.state, decided.head, decided.calls, decided.observation
        if turns_in_circles(turn, head, calls):
            why = f"breaker: the model asks for {head.rejected[0][1]} again and again"
            return await self._end(ref, state, mind, observation, "failed", why, head)
        if not head.calls:
            return await self._finish(ref, state, mind, observation, head)
        command = CommitStep(self._execution_id, head, calls, decided.seen_again_at_ms)
        return await self._commit(ref, state, command)

    async def _decide(
        self, ref: SessionRef, state: SessionState, turn: Turn, mind: Mind, observation: Observation
    ) -> Decided:
        """What the model decides on an observation that is not too old to act on, as far as that can be had.

        Raises:
            As `Asker.ask`.
        """
        used: list[Mapping[str, Any]] = []
        for look in range(1, LOOKS_MAX + 1):
            answered = await self._ask(ref, state, mind, observation)
            state = answered.fitted.state
            head, calls = self._decided(turn, observation, answered)
            used.append(head.usage)
            head = replace(head, usage=together(used)) if len(used) > 1 else head
            decided = Decided(state, head, calls, observation)
            if not too_old(calls, mind.tools, observation, self._clock.now_ms()):
                break
            now = await self.observe(ref, mind.agent.name, state)
            if shows_the_same(observation, now):
                return replace(decided, seen_again_at_ms=now.at_ms)
            if look < LOOKS_MAX:
                self._log.info(
                    "decided on what is no more so, asked again", session=str(ref), run=turn.run_id
                )
                observation = now
        return decided

    async def _ask(
        self, ref: SessionRef, state: SessionState, mind: Mind, observation: Observation
    ) -> Answered:
        asking = self._asker.ask(ref, state, mind, observation)
        if state.anchor is None or not any(each.model.is_llm for each in (mind, *mind.others)):
            # Rules take no time.
            return await asking
        return await while_held(self._sessions, self._clock, ref, state.anchor.generation, asking)

    def _at_a_bound(self, state: SessionState, turn: Turn, mind: Mind) -> tuple[RunOutcome, str] | None:
        """The outcome of a turn that may not ask its model once more, and why; None: it may."""
        if len(turn.steps) >= mind.agent.limits.steps_max:
            return "failed", "the turn reached its limit of steps"
        spent = state.spent.on(self._clock.now_ms())
        why = self._bounds.spending_of(mind).exhausted(spent)
        return ("over_budget", why) if why else None

    async def _mind(self, ref: SessionRef, state: SessionState, *, newest: bool = False) -> Mind:
        if state.anchor is None:
            raise NotFound(f"there is no session {ref.session}")
        name = state.anchor.agent
        return await self._mind_of(ref.workspace, name.partition("@")[0] if newest else name)

    def _decided(
        self,
        turn: Turn,
        observation: Observation,
        answered: Answered,
    ) -> tuple[StepHead, tuple[PlannedCall, ...]]:
        fitted, reply, mind = answered.fitted, answered.reply, answered.mind
        proposed = reply.decision.calls
        planned, rejected = plan_calls(proposed, mind, turn)
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
                model=reply.model or mind.model.name,
            ),
            rejected=rejected,
            calls=len(proposed),
            usage=self._bounds.prices_of(mind).priced(reply.usage.known(), fitted.tokens),
            context={**fitted.context, **asked_in_vain(answered)},
            joined=tuple(each.sequence for each in fitted.said),
        )
        return head, planned

    def _facts(self, state: SessionState, mind: Mind, observation: Observation) -> dict[str, Any]:
        """The anchor's facts after this observation; the ones before where the pack cannot tell."""
        before = state.anchor.facts if state.anchor else {}
        try:
            return mind.pack.reduce(before, observation)
        except Exception:  # noqa: BLE001 - as above
            self._log.exception("the pack could not reduce its facts", pack=mind.pack.name)
            return dict(before)

    async def _finish(
        self, ref: SessionRef, state: SessionState, mind: Mind, observation: Observation, head: StepHead
    ) -> SessionState:
        """The model asked for nothing more: judge what the turn has come to."""
        turn = state.turn
        if turn is None:
            raise Fenced("the turn has ended")
        facts = self._facts(state, mind, observation)
        acting = frozenset(tool.name for tool in mind.tools if tool.mutating and tool.risk is not Risk.NONE)
        outcome, reason = judge(turn, mind.pack.emergency(facts), acting)
        count = circles(state, acting)
        if outcome == "success" and count >= CIRCLES_MAX:
            outcome, reason = (
                "unresolved",
                f"the same decision on the same sight, {count} turns in a row: {reason}",
            )
        return await self._end(ref, state, mind, observation, outcome, reason, head)

    async def _end(
        self,
        ref: SessionRef,
        state: SessionState,
        mind: Mind,
        observation: Observation,
        outcome: RunOutcome,
        reason: str,
        head: StepHead | None = None,
    ) -> SessionState:
        now_ms = self._clock.now_ms()
        facts = self._facts(state, mind, observation)
        spent = asked(state, head).spent if head else state.spent
        warning = self._bounds.spending_of(mind).warning(spent)
        command = EndTurn(
            execution_id=self._execution_id,
            outcome=outcome,
            reason=reason,
            facts=facts,
            next_check_at_ms=next_check_ms(state, outcome, self._bounds.heartbeat_of(mind), now_ms),
            head=head,
            prompt=head.prompt if head else None,
            at_ms=now_ms,
            warning=warning,
        )
        return await self._commit(ref, state, command)

    async def _commit(
        self, ref: SessionRef, state: SessionState, command: CommitStep | EndTurn
    ) -> SessionState:
        """Commit; when a control wrote first and this process still holds the turn, decide anew on what it left."""
        before, after = STEP_EDGES if isinstance(command, CommitStep) else END_EDGES
        for _ in range(REBASES_MAX):
            events = decide(state, command)
            try:
                reached(before)
                state = await self._sessions.append(ref, state, events, self._clock.now_ms())
                reached(after)
                return state
            except Fenced:
                state = await self._sessions.load(ref, state.head, state)
        raise Fenced(f"{ref} is being written by others")


def shortened(observation: Observation) -> Observation:
    """The observation as a prompt shows it and a record keeps it: so that the request can be made again from the record."""
    text = observation.text
    if len(text) <= OBSERVATION_CHARS_MAX:
        return observation
    rest = len(text) - OBSERVATION_CHARS_MAX
    return replace(observation, text=f"{text[:OBSERVATION_CHARS_MAX]}\n(cut: {rest} more characters)")
