"""How often a tool may be run under one claim, on a clock of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.facts import Observation
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.session.events import CommandDecided
from anchorwatch.core.tools import EffectClass, ToolSpec
from anchorwatch.execution.attempts import RECONCILE_TRIES_MAX, RUNS_MAX, Attempts
from anchorwatch.execution.job import Equipment, Job
from anchorwatch.packs.port import (
    NeverDone,
    OutcomeUnknown,
    Probed,
    Reconciled,
    ToolContext,
    ToolFailed,
    ToolResult,
)

from tests.support.packs import BENCH

DONE = ToolResult("done")
LOST = OutcomeUnknown("lost")


@dataclass
class SteppingClock:
    """Sleeping takes no time, and is seen."""

    ms: int = 0
    set_ms: int = 0

    def now_ms(self) -> int:
        return self.ms + self.set_ms

    def elapsed_s(self) -> float:
        return self.ms / 1000

    async def sleep(self, seconds: float) -> None:
        self.ms += round(max(seconds, 0) * 1000)


@dataclass
class Told:
    """A runtime that does as it is told, one answer after another."""

    runs: Iterator[ToolResult | Exception]
    reconciles: Iterator[Reconciled | Exception] = field(default_factory=lambda: iter(()))
    said: list[str] = field(default_factory=list)
    asking: Callable[[], None] = lambda: None

    async def run(self, tool: str, args: Mapping[str, Any], context: ToolContext) -> ToolResult:
        del tool, args
        self.said.append(f"run {context.effect_key}")
        answer = next(self.runs)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def reconcile(self, tool: str, args: Mapping[str, Any], context: ToolContext) -> Reconciled:
        del tool, args
        self.said.append(f"ask {context.effect_key}")
        self.asking()
        answer = next(self.reconciles)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def observe(self) -> Observation:
        raise NotImplementedError

    def changes(self, before: Observation | None, now: Observation) -> Sequence[Probed]:
        del before, now
        return ()

    async def close(self) -> None:
        pass


def attempts(
    effect_class: EffectClass,
    told: Told,
    clock: SteppingClock | None = None,
    *,
    may_go_on: bool = True,
    settle_s: float = 10,
) -> Attempts:
    agent = AgentSpec(name="keeper", pack="bench")
    command = CommandDecided(CallId(1, 1, 1), "t", 1, "keeper@1", "default", "act", {}, "", "", "d", 1)
    job = Job(SessionRef("default", "fleet"), 5, "d1", command)
    tool = ToolSpec("act", "", {}, effect_class, timeout_s=5, settle_s=settle_s)
    context = ToolContext(job.ref, job.call, "t", agent, "k", 1, 5.0, 0, 300.0)

    async def permitted() -> bool:
        told.said.append("fence")
        return may_go_on

    return Attempts(job, Equipment(agent, BENCH, tool, told), context, clock or SteppingClock(), permitted)


@pytest.mark.parametrize("effect_class", list(EffectClass))
async def test_what_succeeds_or_certainly_failed_is_run_once(effect_class: EffectClass) -> None:
    for answer, state in ((DONE, "succeeded"), (ToolFailed("no"), "failed")):
        told = Told(iter([answer]))
        assert (await attempts(effect_class, told).run()).state == state
        assert told.said == ["run k"]


async def test_an_irreversible_tool_is_never_run_a_second_time() -> None:
    told = Told(iter([LOST]))
    assert (await attempts(EffectClass.IRREVERSIBLE, told).run()).state == "unknown"
    assert told.said == ["run k"]


async def test_an_idempotent_tool_is_run_again_under_the_same_key_and_not_without_end() -> None:
    told = Told(iter([LOST] * 10))
    assert (await attempts(EffectClass.IDEMPOTENT, told).run()).state == "unknown"
    assert told.said == ["run k", *["fence", "run k"] * (RUNS_MAX - 1)]


async def test_that_a_later_attempt_did_not_do_it_says_nothing_of_the_one_whose_answer_was_lost() -> None:
    """Its provider was killed when it had done it, and is not there to be asked again."""
    told = Told(iter([LOST, *[ToolFailed("nobody is there")] * 10]))
    ran = await attempts(EffectClass.IDEMPOTENT, told).run()
    assert ran.state == "unknown"
    assert "an earlier attempt may have done it" in ran.text
    back = Told(iter([LOST, ToolFailed("nobody is there"), DONE]))
    assert (await attempts(EffectClass.IDEMPOTENT, back).run()).state == "succeeded"


async def test_nor_of_one_by_an_executor_that_died() -> None:
    told = Told(iter([ToolFailed("nobody is there")] * 10))
    assert (await attempts(EffectClass.IDEMPOTENT, told).run(doubt=True)).state == "unknown"


async def test_the_provider_s_word_on_the_key_is_certain_for_every_attempt() -> None:
    told = Told(iter([LOST, NeverDone("above the limit")]))
    assert (await attempts(EffectClass.IDEMPOTENT, told).run(doubt=True)).state == "failed"
    assert told.said.count("run k") == 2


async def test_what_was_certainly_not_done_leaves_no_doubt_about_the_next_attempt() -> None:
    told = Told(iter([LOST, ToolFailed("no")]), iter([Reconciled("not_done"), Reconciled("not_done")]))
    assert (await attempts(EffectClass.RECONCILABLE, told).run()).state == "failed"
    sure = Reconciled("not_done", rejects_used_key=True)
    told = Told(iter([LOST, *[ToolFailed("no")] * 10]), iter([sure] * 10))
    ran = await attempts(EffectClass.RECONCILABLE, told).run()
    assert ran.state == "unknown", "the first request may still be on its way"


async def test_before_it_is_run_again_the_fence_is_looked_at() -> None:
    told = Told(iter([LOST] * 2))
    ran = await attempts(EffectClass.IDEMPOTENT, told, may_go_on=False).run()
    assert (ran.state, told.said) == ("unknown", ["run k", "fence"])


async def test_a_lost_answer_is_asked_for() -> None:
    told = Told(iter([LOST]), iter([Reconciled("done", DONE)]))
    ran = await attempts(EffectClass.RECONCILABLE, told).run()
    assert (ran.state, ran.result, told.said) == ("succeeded", DONE, ["run k", "ask k"])


async def test_not_done_is_believed_only_when_a_request_has_had_its_time_to_arrive() -> None:
    clock = SteppingClock()
    told = Told(iter([LOST, DONE]), iter([Reconciled("not_done"), Reconciled("not_done")]))
    assert (await attempts(EffectClass.RECONCILABLE, told, clock).run()).state == "succeeded"
    assert told.said == ["run k", "ask k", "ask k", "fence", "run k"]
    assert clock.ms >= 10_000


async def test_a_request_that_arrives_while_it_settles_is_found() -> None:
    told = Told(iter([LOST]), iter([Reconciled("not_done"), Reconciled("done", DONE)]))
    assert (await attempts(EffectClass.RECONCILABLE, told).run()).state == "succeeded"
    assert told.said.count("run k") == 1


async def test_an_answer_that_was_on_its_way_while_it_settled_is_asked_for_again() -> None:
    """The request may have arrived behind the provider's look, and before all had settled."""
    clock = SteppingClock()

    def slow() -> None:
        clock.ms += 11_000

    told = Told(iter([LOST]), iter([Reconciled("not_done"), Reconciled("done", DONE)]), asking=slow)
    assert (await attempts(EffectClass.RECONCILABLE, told, clock).run()).state == "succeeded"
    assert told.said.count("run k") == 1


async def test_a_provider_that_rejects_a_used_key_need_not_be_waited_for() -> None:
    clock = SteppingClock()
    told = Told(iter([LOST, DONE]), iter([Reconciled("not_done", rejects_used_key=True)]))
    assert (await attempts(EffectClass.RECONCILABLE, told, clock).run()).state == "succeeded"
    assert clock.ms < 1_000


@pytest.mark.parametrize("answer", [Reconciled("unknown"), ZeroDivisionError("odd"), OutcomeUnknown("lost")])
async def test_a_provider_that_cannot_say_is_asked_a_few_times_and_nothing_is_run(
    answer: Reconciled | Exception,
) -> None:
    told = Told(iter([LOST]), iter([answer] * 10))
    assert (await attempts(EffectClass.RECONCILABLE, told).run()).state == "unknown"
    assert told.said == ["run k", *["ask k"] * RECONCILE_TRIES_MAX]


SURE, SOFT = Reconciled("not_done", rejects_used_key=True), Reconciled("not_done")


async def test_who_may_only_be_stopped_stays_in_doubt_whatever_a_later_attempt_says() -> None:
    """The provider takes the key once: from this executor, or from the stopped one, once it goes on."""
    told = Told(iter([ToolFailed("no"), *[ToolFailed("no")] * 10]), iter([SURE] * 10))
    ran = await attempts(EffectClass.RECONCILABLE, told, settle_s=0).take_up(doubt=True)
    assert ran.state == "unknown", "the stopped one may do it yet"
    told = Told(iter([LOST]), iter([SURE, *[SOFT] * 10]))
    ran = await attempts(EffectClass.RECONCILABLE, told, settle_s=0).take_up(doubt=True)
    assert ran.state == "unknown"
    assert told.said.count("run k") == 1
    told = Told(iter([]), iter([SURE]))
    held = attempts(EffectClass.RECONCILABLE, told, may_go_on=False, settle_s=0)
    assert (await held.take_up(doubt=True)).state == "unknown"


@pytest.mark.parametrize("set_s", [-3600, 3600])
async def test_a_clock_that_is_set_neither_prolongs_nor_shortens_the_time_to_settle(set_s: int) -> None:
    clock = SteppingClock()

    def set_clock() -> None:
        clock.set_ms += set_s * 1000

    told = Told(iter([LOST]), iter([Reconciled("not_done")] * 3), asking=set_clock)
    await attempts(EffectClass.RECONCILABLE, told, clock, may_go_on=False).run()
    assert told.said == ["run k", "ask k", "ask k", "fence"]
    assert clock.elapsed_s() == 10


@pytest.mark.parametrize(("rejects", "settle_s", "state"), [(True, 10, "unknown"), (False, 0, "failed")])
async def test_a_dead_owner_s_command_that_may_not_go_on_is_not_run(
    settle_s: float, state: str, *, rejects: bool
) -> None:
    told = Told(iter([]), iter([Reconciled("not_done", rejects_used_key=rejects)]))
    found = await attempts(EffectClass.RECONCILABLE, told, may_go_on=False, settle_s=settle_s).take_up(
        doubt=False
    )
    assert (found.state, told.said) == (state, ["ask k", "fence"])


async def test_a_read_that_fails_in_any_way_has_failed() -> None:
    for error in (LOST, TimeoutError(), ZeroDivisionError("odd")):
        told = Told(iter([error]))
        assert (await attempts(EffectClass.READ, told).run()).state == "failed"
