"""One state of the model: the journal, who is doing what, what is on its way, and what was done outside."""

from __future__ import annotations

from typing import NamedTuple

from anchorwatch.core.effect.state import GateDecided
from anchorwatch.core.names import CallId
from anchorwatch.core.session.events import AnchorChanged
from anchorwatch.core.session.transitions import CONTROLS

from tests.model.journal import PLANNERS, Family, Journal, Record, last_of, number_of, record_at
from tests.model.properties import broken_by
from tests.model.rules import Faults, Setup

WAITING, AGAIN, IN_HAND = 1, 2, 0
"""Marks of a message: to be delivered, to be delivered once more, with somebody."""
Messages = tuple[tuple[int, int], ...]
"""(sequence, mark) of what is not acked, in order."""


class Write(NamedTuple):
    """Records on their way to the server, fenced on ``family``'s last sequence."""

    family: Family
    expected: int
    numbers: tuple[int, ...]


class Planner(NamedTuple):
    """``life`` counts incarnations. ``read`` and ``own``: what it knows of the session.

    ``spent``: it took the turn by the message in hand, and lost it. ``remembers``: what it knows it keeps at rest.
    ``supposed``: how far it knows the session once its write has landed.
    """

    life: int = 1
    phase: str = ""
    cause: tuple[str, int, int] = ("", 0, 0)
    read: int = 0
    own: tuple[int, ...] = ()
    write: Write | None = None
    spent: bool = False
    remembers: bool = False
    supposed: int = 0


NONE = CallId(0, 0, 0)


class Executor(NamedTuple):
    """``message``: the sequence in hand. ``head``: how far it knows the command's family. ``said``: the provider's answer."""

    life: int = 1
    phase: str = ""
    message: int = 0
    attempt: int = 0
    call: CallId = NONE
    head: int = 0
    write: Write | None = None
    said: str = ""
    settled: bool = False


class Person(NamedTuple):
    """Somebody who does one thing. ``does`` is empty when it is done."""

    does: str
    write: Write | None = None


class World(NamedTuple):
    """A state. ``requests``: calls whose request is on its way and nobody waits for. ``done``: what happened outside.

    ``safe``: calls of which a canceller was told that they will not run. ``broken``: the property that the last move broke.
    """

    journal: Journal = ()
    wakes: Messages = ()
    orders: Messages = ()
    planners: tuple[Planner, ...] = ()
    executors: tuple[Executor, ...] = ()
    people: tuple[Person, ...] = ()
    late_writes: tuple[Write, ...] = ()
    requests: tuple[CallId, ...] = ()
    done: tuple[CallId, ...] = ()
    safe: tuple[CallId, ...] = ()
    inputs_left: int = 0
    left: Faults = Faults()
    broken: str = ""


def put(items: tuple, index: int, value: object) -> tuple:  # type: ignore[type-arg]
    """The tuple with one item replaced."""
    return (*items[:index], value, *items[index + 1 :])


def spend(world: World, fault: str) -> World | None:
    """The world with one of this fault used up; None when there is none left."""
    left = getattr(world.left, fault)
    return world._replace(left=world.left._replace(**{fault: left - 1})) if left else None


# --- the server


def planner_write(setup: Setup, journal: Journal, head: int, events: tuple[object, ...]) -> Write:
    """A write of planner events by somebody who takes ``head`` for the family's last record. An anchor's register counts alone
    where the whole fence was taken away."""
    numbers = []
    for offset, event in enumerate(events):
        register = "p.anchor" if isinstance(event, AnchorChanged) else "p.cmd"
        numbers.append(number_of(Record(register, event, None, -1 if offset else head)))  # type: ignore[arg-type]
        if isinstance(event, AnchorChanged) and event.kind in CONTROLS:
            # One atomic batch: what is ordered, and its receipt, which wakes.
            numbers.append(number_of(Record("ctl", event.kind)))
    if setup.cures.whole_fence:
        return Write(PLANNERS, head, tuple(numbers))
    return Write("p.anchor", last_of(journal[:head], "p.anchor"), tuple(numbers))


def lands(setup: Setup, world: World, write: Write) -> World | None:
    """The world in which the server stored the write; None when its fence does not hold."""
    if last_of(world.journal, write.family) != write.expected:
        return None
    for number in write.numbers:
        world = _store(setup, world, number)
    if world.late_writes:
        world = world._replace(
            late_writes=tuple(each for each in world.late_writes if may_land(world.journal, each))
        )
    return world


def may_land(journal: Journal, write: Write) -> bool:
    """Whether the write can still be stored: a family only grows."""
    return last_of(journal, write.family) == write.expected


def on_its_way(world: World, write: Write) -> World:
    """The world in which the write may land at any later time, or never."""
    if not may_land(world.journal, write):
        return world
    return world._replace(late_writes=tuple(sorted((*world.late_writes, write), key=repr)))


def may_fail(world: World) -> bool:
    """Whether something can come between a process's write and its answer to the message in hand."""
    return bool(world.left.crashes or world.left.redeliveries or world.left.lost_acks)


def _store(setup: Setup, world: World, number: int) -> World:
    journal = (*world.journal, number)
    broken = world.broken or broken_by(journal)
    world = world._replace(journal=journal, broken=broken)
    sequence = len(journal)
    record = record_at(journal, sequence)
    answer = isinstance(record.event, GateDecided)
    wakes = (
        record.register in ("in", "done")
        or answer
        or (record.register == "ctl" and setup.cures.controls_wake)
    )
    if wakes and setup.planners:
        world = world._replace(wakes=(*world.wakes, (sequence, WAITING)))
    if (record.register == "p.cmd" or answer) and setup.executors:
        world = world._replace(orders=(*world.orders, (sequence, WAITING)))
    return world


# --- messages


def marked(messages: Messages, sequence: int, mark: int) -> Messages:
    """The messages with one of them marked; one that was acked stays so."""
    return tuple((at, mark if at == sequence else was) for at, was in messages)


def acked(messages: Messages, sequence: int) -> Messages:
    return tuple(each for each in messages if each[0] != sequence)


def waiting(messages: Messages) -> list[tuple[int, int]]:
    """(sequence, attempt) of what can be delivered: of what never was only the first, since messages come in order."""
    fresh = [(at, 1) for at, mark in messages if mark == WAITING]
    return [*fresh[:1], *((at, 2) for at, mark in messages if mark == AGAIN)]
