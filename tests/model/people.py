"""People: who cancels, pauses, resumes, answers at a gate. Each reads the newest state, decides by the real machine, and tries
again when its fence is lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from anchorwatch.core.anchor import Fence
from anchorwatch.core.effect.state import GateDecided
from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.core.names import CallId
from anchorwatch.core.records import Kind
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import Command, Control, Reset, Steer
from anchorwatch.core.session.decide import decide
from anchorwatch.core.session.events import AnchorChanged, PlannerEvent

from tests.model.journal import ANCHOR, Record, commands, effect, last_of, number_of, session
from tests.model.rules import Setup
from tests.model.search import Move
from tests.model.world import Person, World, Write, lands, planner_write, put

CONTROL = {"cancel": Kind.CANCELLED, "pause": Kind.PAUSED, "resume": Kind.RESUMED, "delete": Kind.DELETED}
AFTER = {"pause": "resume"}
FENCES = ("cancel", "reset")
"""Orders whose giver is told which commands will not run."""


def moves(setup: Setup, world: World) -> Iterator[Move[World]]:
    """What people may do now."""
    for index, person in enumerate(world.people):
        if not person.does:
            continue
        # Who has paused may leave it so; everything else that people do is theirs to begin, and comes to its end by itself.
        if person.write is None:
            for write, what in _begins(setup, world, person.does):
                yield Move(
                    f"somebody begins to {what}",
                    _with(world, index, person._replace(write=write)),
                    fair=False,
                )
        else:
            yield _writes(setup, world, index, person, person.write)


def _with(world: World, index: int, person: Person) -> World:
    return world._replace(people=put(world.people, index, person))


def _begins(setup: Setup, world: World, does: str) -> Iterator[tuple[Write, str]]:
    if does == "answer":
        for _, command in commands(world.journal):
            state = effect(world.journal, command.call, len(world.journal))
            if state.gate is not None and state.approval is None and state.outcome is None:
                yield answer(command.call, state.head, approved=True), f"approve {command.call}"
                yield answer(command.call, state.head, approved=False), f"deny {command.call}"
        return
    write = _control(setup, world, does)
    if write is not None:
        yield write, does


def answer(call: CallId, head: int, *, approved: bool) -> Write:
    event = GateDecided(approved, "binding", "person")
    return Write(call, head, (number_of(Record("gate", event, call)),))


def _control(setup: Setup, world: World, does: str) -> Write | None:
    state = session(world.journal)
    try:
        [event] = decide(state, _order(state, does))
    except AnchorWatchError:
        return None
    if not setup.cures.control_raises_fence and state.anchor is not None:
        event = _lower(event, state.anchor.fence)
    return planner_write(setup, world.journal, state.head, (event,))


def _order(state: SessionState, does: str) -> Command:
    if does == "reset":
        return Reset("person", 0, state.read_through)
    if does == "steer":
        return Steer(
            "person", 0, state.anchor.turn.id if state.anchor and state.anchor.turn else "", "left a bit"
        )
    return Control(CONTROL[does], "person", 0)


def _lower(event: PlannerEvent, fence: Fence) -> PlannerEvent:
    if not isinstance(event, AnchorChanged):
        return event
    return replace(event, anchor=replace(event.anchor, fence=fence))


def _writes(setup: Setup, world: World, index: int, person: Person, write: Write) -> Move[World]:
    after = lands(setup, world, write)
    if after is None:
        return Move(
            f"{person.does}: was not first, looks again", _with(world, index, person._replace(write=None))
        )
    if person.does in FENCES:
        after = after._replace(safe=_told(after))
    return Move(
        f"{person.does} at {len(after.journal)}", _with(after, index, Person(AFTER.get(person.does, "")))
    )


def _told(world: World) -> tuple[CallId, ...]:
    """The commands so far of which nobody's first claim is older than the fence, and that have no outcome."""
    fence = last_of(world.journal, ANCHOR)
    return tuple(
        command.call
        for _, command in commands(world.journal)
        if not effect(world.journal, command.call, fence).first_claim
    )
