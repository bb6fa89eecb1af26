"""How often a tool runs under one claim, on a simulated clock."""

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
from anchorwatch.executor.attempts import RECONCILE_TRIES_MAX, RUNS_MAX, Attempts
from anchorwatch.executor.job import Equipment
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
    """Sleeping takes no real time."""

    ms: int = 0
    set_ms: int = 0

    def now_ms(self) -> int:
        return self.ms + self.set_ms

    def elapsed_s(self) -> float:
        return self.ms / 1000

    async def sleep(self, seconds: float) -> None:
        self.ms += round(max(seconds, 0) * 1000)


@dataclass
class Scripted:
    """A runtime that gives its answers in order, and records its calls."""

    runs: Iterator[ToolResult | Exception]
    reconciles: Iterator[Reconciled | Exception] = field(default_factory=lambda: iter(()))
    calls: list[str] = field(default_factory=list)
    asking: Callable[[], None] = lambda: None

    async def run(self, tool: str, args: Mapping[str, Any], context: ToolContext) -> ToolResult:
        del tool, args
        self.calls.append(f"run {context.effect_key}")
        answer = next(self.runs)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def reconcile(self, tool: str, args: Mapping[str, Any], context: ToolContext) -> Reconciled:
        del tool, args
        self.calls.append(f"ask {context.effect_key}")
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
    runtime: Scripted,
    clock: SteppingClock | None = None,
    *,
    may_run_again: bool = True,
    settle_s: float = 10,
) -> Attempts:
    agent = AgentSpec(name="keeper", pack="bench")
    command = CommandDecided(CallId(1, 1, 1), "t", 1, "keeper@1", "default", "act", {}, "", "", "d", 1)
    tool = ToolSpec("act", "", {}, effect_class, timeout_s=5, settle_s=settle_s)
    context = ToolContext(SessionRef("default", "fleet"), command.call, "t", agent, "k", 1, 5.0, 0, 300.0)

    async def permitted() -> bool:
        runtime.calls.append("fence")
        return may_run_again

    return Attempts(
        command, Equipment(agent, BENCH, tool, runtime), context, clock or SteppingClock(), permitted
    )


@pytest.mark.parametrize("effect_class", list(EffectClass))
async def test_certain_outcome_is_not_run_again(effect_class: EffectClass) -> None:
    for answer, state in ((DONE, "succeeded"), (ToolFailed("no"), "failed")):
        runtime = Scripted(iter([answer]))
        assert (await attempts(effect_class, runtime).run()).state == state
        assert runtime.calls == ["run k"]


async def test_irreversible_tool_runs_once() -> None:
    runtime = Scripted(iter([LOST]))
    assert (await attempts(EffectClass.IRREVERSIBLE, runtime).run()).state == "unknown"
    assert runtime.calls == ["run k"]


async def test_idempotent_tool_runs_again_a_limited_number_of_times() -> None:
    runtime = Scripted(iter([LOST] * 10))
    assert (await attempts(EffectClass.IDEMPOTENT, runtime).run()).state == "unknown"
    assert runtime.calls == ["run k", *["fence", "run k"] * (RUNS_MAX - 1)]


async def test_later_failure_does_not_settle_a_lost_answer() -> None:
    """The provider was killed after the effect, and is not there to answer again."""
    runtime = Scripted(iter([LOST, *[ToolFailed("nobody is there")] * 10]))
    ran = await attempts(EffectClass.IDEMPOTENT, runtime).run()
    assert ran.state == "unknown"
    assert "an earlier attempt may have done it" in ran.text
    back = Scripted(iter([LOST, ToolFailed("nobody is there"), DONE]))
    assert (await attempts(EffectClass.IDEMPOTENT, back).run()).state == "succeeded"


async def test_failure_does_not_settle_a_dead_executor_s_attempt() -> None:
    runtime = Scripted(iter([ToolFailed("nobody is there")] * 10))
    assert (await attempts(EffectClass.IDEMPOTENT, runtime).run(doubt=True)).state == "unknown"


async def test_never_done_settles_every_attempt() -> None:
    runtime = Scripted(iter([LOST, NeverDone("above the limit")]))
    assert (await attempts(EffectClass.IDEMPOTENT, runtime).run(doubt=True)).state == "failed"
    assert runtime.calls.count("run k") == 2


async def test_certain_not_done_clears_the_doubt() -> None:
    runtime = Scripted(iter([LOST, ToolFailed("no")]), iter([Reconciled("not_done"), Reconciled("not_done")]))
    assert (await attempts(EffectClass.RECONCILABLE, runtime).run()).state == "failed"
    sure = Reconciled("not_done", rejects_used_key=True)
    runtime = Scripted(iter([LOST, *[ToolFailed("no")] * 10]), iter([sure] * 10))
    ran = await attempts(EffectClass.RECONCILABLE, runtime).run()
    assert ran.state == "unknown", "the first request may still be on its way"


async def test_fence_is_read_before_every_further_run() -> None:
    runtime = Scripted(iter([LOST] * 2))
    ran = await attempts(EffectClass.IDEMPOTENT, runtime, may_run_again=False).run()
    assert (ran.state, runtime.calls) == ("unknown", ["run k", "fence"])


async def test_lost_answer_is_reconciled() -> None:
    runtime = Scripted(iter([LOST]), iter([Reconciled("done", DONE)]))
    ran = await attempts(EffectClass.RECONCILABLE, runtime).run()
    assert (ran.state, ran.result, runtime.calls) == ("succeeded", DONE, ["run k", "ask k"])


async def test_not_done_counts_only_after_the_settle_time() -> None:
    clock = SteppingClock()
    runtime = Scripted(iter([LOST, DONE]), iter([Reconciled("not_done"), Reconciled("not_done")]))
    assert (await attempts(EffectClass.RECONCILABLE, runtime, clock).run()).state == "succeeded"
    assert runtime.calls == ["run k", "ask k", "ask k", "fence", "run k"]
    assert clock.ms >= 10_000


async def test_request_that_arrives_while_settling_is_found() -> None:
    runtime = Scripted(iter([LOST]), iter([Reconciled("not_done"), Reconciled("done", DONE)]))
    assert (await attempts(EffectClass.RECONCILABLE, runtime).run()).state == "succeeded"
    assert runtime.calls.count("run k") == 1


async def test_answer_from_before_the_settle_time_is_requested_again() -> None:
    """The request may have arrived after the provider looked, and before the settle time was over."""
    clock = SteppingClock()

    def slow() -> None:
        clock.ms += 11_000

    runtime = Scripted(iter([LOST]), iter([Reconciled("not_done"), Reconciled("done", DONE)]), asking=slow)
    assert (await attempts(EffectClass.RECONCILABLE, runtime, clock).run()).state == "succeeded"
    assert runtime.calls.count("run k") == 1


async def test_provider_that_rejects_used_keys_needs_no_settle_time() -> None:
    clock = SteppingClock()
    runtime = Scripted(iter([LOST, DONE]), iter([Reconciled("not_done", rejects_used_key=True)]))
    assert (await attempts(EffectClass.RECONCILABLE, runtime, clock).run()).state == "succeeded"
    assert clock.ms < 1_000


@pytest.mark.parametrize("answer", [Reconciled("unknown"), ZeroDivisionError("odd"), OutcomeUnknown("lost")])
async def test_undecided_provider_is_queried_a_few_times(
    answer: Reconciled | Exception,
) -> None:
    runtime = Scripted(iter([LOST]), iter([answer] * 10))
    assert (await attempts(EffectClass.RECONCILABLE, runtime).run()).state == "unknown"
    assert runtime.calls == ["run k", *["ask k"] * RECONCILE_TRIES_MAX]


SURE, SOFT = Reconciled("not_done", rejects_used_key=True), Reconciled("not_done")


async def test_stopped_owner_stays_in_doubt() -> None:
    """The provider takes the key once: from this executor, or from the stopped one when it resumes."""
    runtime = Scripted(iter([ToolFailed("no"), *[ToolFailed("no")] * 10]), iter([SURE] * 10))
    ran = await attempts(EffectClass.RECONCILABLE, runtime, settle_s=0).resume(doubt=True)
    assert ran.state == "unknown", "the stopped one may do it yet"
    runtime = Scripted(iter([LOST]), iter([SURE, *[SOFT] * 10]))
    ran = await attempts(EffectClass.RECONCILABLE, runtime, settle_s=0).resume(doubt=True)
    assert ran.state == "unknown"
    assert runtime.calls.count("run k") == 1
    runtime = Scripted(iter([]), iter([SURE]))
    held = attempts(EffectClass.RECONCILABLE, runtime, may_run_again=False, settle_s=0)
    assert (await held.resume(doubt=True)).state == "unknown"


@pytest.mark.parametrize("set_s", [-3600, 3600])
async def test_setting_the_clock_does_not_change_the_settle_time(set_s: int) -> None:
    clock = SteppingClock()

    def set_clock() -> None:
        clock.set_ms += set_s * 1000

    runtime = Scripted(iter([LOST]), iter([Reconciled("not_done")] * 3), asking=set_clock)
    await attempts(EffectClass.RECONCILABLE, runtime, clock, may_run_again=False).run()
    assert runtime.calls == ["run k", "ask k", "ask k", "fence"]
    assert clock.elapsed_s() == 10


@pytest.mark.parametrize(("rejects", "settle_s", "state"), [(True, 10, "unknown"), (False, 0, "failed")])
async def test_fenced_command_of_a_dead_owner_does_not_run(
    settle_s: float, state: str, *, rejects: bool
) -> None:
    runtime = Scripted(iter([]), iter([Reconciled("not_done", rejects_used_key=rejects)]))
    found = await attempts(EffectClass.RECONCILABLE, runtime, may_run_again=False, settle_s=settle_s).resume(
        doubt=False
    )
    assert (found.state, runtime.calls) == (state, ["ask k", "fence"])


async def test_read_never_ends_unknown() -> None:
    for error in (LOST, TimeoutError(), ZeroDivisionError("odd")):
        runtime = Scripted(iter([error]))
        assert (await attempts(EffectClass.READ, runtime).run()).state == "failed"
