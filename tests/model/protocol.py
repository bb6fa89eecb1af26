"""The protocol as a whole: where it starts, what can happen, and when nothing is left to do."""

from __future__ import annotations

import gc
from collections.abc import Iterator

from anchorwatch.core.effect.state import Outcome
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.session.commands import Acquire, CommitStep, Create, PlannedCall
from anchorwatch.core.session.decide import decide
from anchorwatch.core.session.events import StepHead

from tests.model import executor, people, planner, tool
from tests.model.journal import Record, commands, effect, fenced_at, forget, number_of, session
from tests.model.properties import broken_outside
from tests.model.rules import Setup
from tests.model.search import Found, Move, Search
from tests.model.world import (
    AGAIN,
    IN_HAND,
    Executor,
    Messages,
    Person,
    Planner,
    World,
    Write,
    lands,
    marked,
    planner_write,
    spend,
)

REF = SessionRef("default", "s")
FORMER = "planner-0:0"


def explore(setup: Setup, states_max: int) -> Found:
    """Search the whole of a configuration.

    Raises:
        TooMany: it has more than ``states_max`` states.
    """
    search = Search[World](
        lambda world: moves(setup, world),
        lambda world: world.broken or broken_outside(setup, world),
        lambda world: rests(setup, world),
    )
    # States hold no cycles, and there are many: looking for some takes longer than the search.
    gc.disable()
    try:
        return search.run(start(setup), states_max)
    finally:
        gc.enable()
        forget()


def start(setup: Setup) -> World:
    """A session that was just made; without planners, one whose turn has decided its commands."""
    world = World(
        planners=(Planner(remembers=setup.remembers),) * setup.planners,
        executors=(Executor(),) * setup.executors,
        people=tuple(Person(does) for does in setup.people),
        inputs_left=setup.inputs if setup.planners else 0,
        left=setup.faults,
    )
    world = _commit(setup, world, Create(REF, "a@1", (), (), 0, "person"))
    if not setup.planners:
        world = lands(setup, world, Write("i0", 0, (number_of(Record("in", "i0")),))) or world
        world = _commit(setup, world, Acquire("t1", "a@1", FORMER, 0, len(world.journal), 0))
        calls = tuple(PlannedCall(n, "tool", {}, "", "default", "") for n in range(1, setup.commands + 1))
        world = _commit(
            setup, world, CommitStep(FORMER, StepHead(1, "", None, None, calls=len(calls)), calls)
        )
    return world._replace(wakes=()) if setup.planners else world


def _commit(setup: Setup, world: World, command: object) -> World:
    state = session(world.journal)
    write = planner_write(setup, world.journal, state.head, tuple(decide(state, command)))  # type: ignore[arg-type]
    after = lands(setup, world, write)
    if after is None:
        raise AssertionError("nobody else writes yet")
    return after


def moves(setup: Setup, world: World) -> Iterator[Move[World]]:
    """Everything that can happen now."""
    yield from planner.moves(setup, world)
    yield from executor.moves(setup, world)
    yield from people.moves(setup, world)
    yield from _outside(setup, world)
    if setup.planners and not setup.executors:
        yield from _outcomes(setup, world)
    yield from _redeliveries(world)


def _outside(setup: Setup, world: World) -> Iterator[Move[World]]:
    if world.inputs_left:
        name = f"i{world.inputs_left}"
        after = lands(setup, world, Write(name, 0, (number_of(Record("in", name)),)))
        if after is not None:
            yield Move(
                f"input {name} is accepted", after._replace(inputs_left=world.inputs_left - 1), fair=False
            )
    for n, write in enumerate(world.late_writes):
        rest = world._replace(late_writes=(*world.late_writes[:n], *world.late_writes[n + 1 :]))
        yield Move("a late write arrives", lands(setup, rest, write) or rest, fair=False)
    for n, call in enumerate(world.requests):
        rest = world._replace(requests=(*world.requests[:n], *world.requests[n + 1 :]))
        yield Move(f"a late request of {call} arrives", tool.arrives(setup, rest, call))
        yield Move(f"a request of {call} never arrives", rest)


def _outcomes(setup: Setup, world: World) -> Iterator[Move[World]]:
    """Where no executor takes part, each command gets its outcome at some time."""
    for _, command in commands(world.journal):
        call = command.call
        if effect(world.journal, call, len(world.journal)).outcome is None:
            over = bool(fenced_at(world.journal, call.run))
            done = Outcome(
                call, "tool", "refused" if over else "succeeded", "", {}, rule="fence" if over else ""
            )
            after = lands(setup, world, Write(call, 0, (number_of(Record("done", done, call)),)))
            if after is not None:
                yield Move(f"{call} has its outcome at {len(after.journal)}", after)


def _redeliveries(world: World) -> Iterator[Move[World]]:
    held = {each.cause[1] for each in world.planners if each.phase not in ("", "dead")} | {
        each.message for each in world.executors if each.phase
    }
    again = spend(world, "redeliveries")
    for at in _in_hand((*world.wakes, *world.orders)):
        # What is extended by nobody comes again; what somebody works on does so by a fault.
        after = again if at in held else world
        if after is not None:
            wakes, orders = marked(after.wakes, at, AGAIN), marked(after.orders, at, AGAIN)
            after = after._replace(wakes=wakes, orders=orders)
            yield Move(f"message {at} is delivered again", after, fair=at not in held)


def _in_hand(messages: Messages) -> list[int]:
    return [at for at, mark in messages if mark == IN_HAND]


def rests(setup: Setup, world: World) -> bool:
    """Nothing is left to do but what people must."""
    if any(each.phase not in ("", "dead") for each in world.planners) or any(
        each.phase for each in world.executors
    ):
        return False
    state = session(world.journal)
    if state.anchor is None or state.anchor.status == "paused":
        return True
    deleted = state.anchor.status == "deleted"
    open_calls = [command.call for _, command in commands(world.journal) if not _is_over(world, command.call)]
    if not setup.planners:
        return not open_calls
    if state.anchor.status == "active":
        return bool(open_calls) is False and state.turn is not None and not state.turn.settled
    return not open_calls and (deleted or not state.pending)


def _is_over(world: World, call: CallId) -> bool:
    """It has its outcome, or waits for a person."""
    state = effect(world.journal, call, len(world.journal))
    return state.outcome is not None or (state.gate is not None and state.approval is None)
