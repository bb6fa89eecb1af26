"""What all phases of an executor share: who it is, what it knows, how it writes, and how it answers for its message."""

from __future__ import annotations

from collections.abc import Iterator

from anchorwatch.core.effect import EffectState
from anchorwatch.core.effect.state import (
    Claimed,
    EffectEvent,
    Outcome,
    OutcomeState,
    Owner,
    Released,
)
from anchorwatch.core.names import CallId

from tests.model.journal import Record, effect, number_of
from tests.model.rules import Setup
from tests.model.world import (
    AGAIN,
    Executor,
    World,
    Write,
    acked,
    marked,
    may_fail,
    put,
    spend,
)


def owner(index: int, executor: Executor) -> Owner:
    return Owner(f"executor-{index}", str(executor.life))


def name(index: int, executor: Executor) -> str:
    return f"executor-{index}:{executor.life}"


def with_executor(world: World, index: int, executor: Executor, *, wrote: bool = False) -> World:
    """The world with this executor. Its answer to the message follows at once, as a planner's does."""
    if executor.phase == "keeps" or (executor.phase == "acks" and not (wrote and may_fail(world))):
        return answered(world, index, executor)
    return world._replace(executors=put(world.executors, index, executor))


def answered(world: World, index: int, executor: Executor) -> World:
    at = executor.message
    orders = acked(world.orders, at) if executor.phase == "acks" else marked(world.orders, at, AGAIN)
    return world._replace(orders=orders, executors=put(world.executors, index, Executor(executor.life)))


def effect_of(world: World, executor: Executor) -> EffectState:
    return effect(world.journal, executor.call, executor.head)


def reads_upto(setup: Setup, world: World, least: int) -> Iterator[tuple[World, int]]:
    """How far a read may reach that must reach at least to ``least``."""
    yield world, len(world.journal)
    late = spend(world, "stale_reads")
    if late is not None:
        for upto in range(least if setup.cures.reach else 1, len(world.journal)):
            yield late, upto


def writing(setup: Setup, executor: Executor, event: EffectEvent) -> Executor:
    register = {Claimed: "claim", Released: "claim", Outcome: "done"}.get(type(event), "gate")
    number = number_of(Record(register, event, executor.call))
    family: CallId | str = executor.call
    expected = executor.head
    if not setup.cures.one_family and register != "gate":
        family, expected = f"{register} {executor.call}", -1
    return executor._replace(phase="writes", write=Write(family, expected, (number,)))


def claiming(setup: Setup, executor: Executor, state: EffectState, me: Owner, *, doubt: bool) -> Executor:
    return writing(setup, executor, Claimed(me, state.attempts + 1, "key", doubt))


def outcome(call: CallId, state: OutcomeState, text: str, rule: str = "") -> Outcome:
    return Outcome(call, "tool", state, text, {}, rule=rule)
