"""A planner: the order in which `look.py` reads, decides and writes, and what becomes of its messages."""

from __future__ import annotations

from collections.abc import Iterator

from anchorwatch.core.records import Kind

from tests.model.journal import (
    ANCHOR,
    PLANNERS,
    anchors,
    last_of,
    record_at,
    session,
)
from tests.model.looking import known, look, name, supposes
from tests.model.rules import Setup
from tests.model.search import Move
from tests.model.world import (
    AGAIN,
    IN_HAND,
    Planner,
    World,
    Write,
    acked,
    lands,
    marked,
    may_fail,
    on_its_way,
    put,
    spend,
    waiting,
)

KINDS = {"in": "in", "done": "done", "gate": "gate", "ctl": "control"}


def moves(setup: Setup, world: World) -> Iterator[Move[World]]:
    """What planners may do now."""
    for index, planner in enumerate(world.planners):
        if planner.phase == "dead":
            continue
        if not planner.phase:
            yield from _takes(setup, world, index, planner)
        elif planner.phase == "reads":
            yield from _reads(setup, world, index, planner)
        elif planner.phase == "writes":
            yield from _writes(setup, world, index, planner)
        else:
            yield from _answers(world, index, planner)
        yield from _crashes(setup, world, index, planner)


def _with(world: World, index: int, planner: Planner, *, wrote: bool = False) -> World:
    """The world with this planner. Its answer to the message follows at once, unless a fault may come between what it has just
    written and that answer: dying after a look that wrote nothing is dying before it."""
    if planner.phase in ("keeps", "leaves") or (planner.phase == "acks" and not (wrote and may_fail(world))):
        return _answered(world, index, planner)
    return world._replace(planners=put(world.planners, index, planner))


def _is_new(world: World, index: int) -> bool:
    """Whether nothing tells this planner from another that is new."""
    planner = world.planners[index]
    return planner == Planner(remembers=planner.remembers) and not any(
        (change.anchor.execution_id or "").startswith(f"planner-{index}:")
        for _, change in anchors(world.journal)
    )


def _takes(setup: Setup, world: World, index: int, planner: Planner) -> Iterator[Move[World]]:
    if any(_is_new(world, before) for before in range(index)):
        return  # symmetry: of planners that nothing tells apart, the first stands for all
    me = name(index, planner)
    for at, attempt in waiting(world.wakes):
        record = record_at(world.journal, at)
        kind = "resumed" if record.event == Kind.RESUMED else KINDS[record.register]
        taken = world._replace(wakes=marked(world.wakes, at, IN_HAND))
        if not setup.cures.acks_last:
            taken = taken._replace(wakes=acked(world.wakes, at))
        busy = planner._replace(phase="reads", cause=(kind, at, attempt))
        if kind == "done" and known(world, planner).is_held_by(me):
            # What the cached turn waited for came by itself: nothing has to be read.
            report = busy if at <= busy.read or at in busy.own else busy._replace(own=(*busy.own, at))
            if (state := known(world, report)).turn and state.turn.settled:
                after = _with(taken, index, look(setup, world, me, report))
                yield Move(f"{me} is told of the outcome {at}", after)
                continue
        supposed = supposes(setup, taken, me, busy) if kind == "in" and setup.remembers else None
        if supposed is not None:
            yield Move(f"{me} begins by {kind} {at} on what it supposes", _with(taken, index, supposed))
        for move in _reads(setup, taken, index, busy):
            yield move._replace(label=f"{me} takes {kind} {at}, delivery {attempt}; {move.label}")


def _reads(setup: Setup, world: World, index: int, planner: Planner) -> Iterator[Move[World]]:
    me, newest = name(index, planner), len(world.journal)
    after = look(setup, world, me, planner._replace(read=newest, own=()))
    yield Move(f"{me} reads up to {newest}", _with(world, index, after))
    late = spend(world, "stale_reads")
    if late is not None:
        floor = max(planner.cause[1], known(world, planner).head) if setup.cures.reach else 1
        for upto in range(max(floor, 1), newest):
            after = look(setup, world, me, planner._replace(read=upto, own=()))
            yield Move(f"{me} reads up to {upto} only", _with(late, index, after), fair=False)


def _writes(setup: Setup, world: World, index: int, planner: Planner) -> Iterator[Move[World]]:
    me, write = name(index, planner), planner.write
    if write is None:
        raise AssertionError("nothing to write")
    idle = planner._replace(write=None, supposed=0)
    after = lands(setup, world, write)
    if after is None:
        # To read at once is to read at any time: until it is refused, a write does nothing.
        for move in _reads(setup, world, index, _fenced(world, me, idle, write)):
            yield move._replace(label=f"{me} is fenced; {move.label}")
    else:
        proved = idle._replace(read=planner.supposed, own=()) if planner.supposed else idle
        wrote = _wrote(setup, after, me, proved, write)
        broken = after.broken or _astray(after, wrote, me)
        after = _with(after._replace(broken=broken), index, wrote, wrote=True)
        yield Move(f"{me} writes {_what(write)} at {len(after.journal)}", after)
    given_up = spend(world, "unanswered")
    if given_up is not None:
        lost = _with(given_up, index, idle._replace(phase="keeps"))
        yield Move(f"{me} hears nothing of {_what(write)}", on_its_way(lost, write), fair=False)


def _fenced(world: World, me: str, planner: Planner, write: Write) -> Planner:
    if write.family not in (PLANNERS, ANCHOR):
        # The tick stands already: its message is the one to hold.
        return planner._replace(phase="reads", cause=("start", last_of(world.journal, write.family), 1))
    mine = known(world, planner).is_held_by(me)
    return planner._replace(phase="reads", spent=planner.spent or mine)


def _wrote(setup: Setup, after: World, me: str, planner: Planner, write: Write) -> Planner:
    if write.family not in (PLANNERS, ANCHOR):
        return planner._replace(phase="acks")
    first = len(after.journal) - len(write.numbers) + 1
    planner = planner._replace(own=(*planner.own, *range(first, len(after.journal) + 1)))
    state = known(after, planner)
    if state.is_held_by(me):
        return look(setup, after, me, planner)
    # The turn has ended: look again, at least up to its end.
    return planner._replace(phase="reads" if setup.cures.looks_again else "acks")


def _astray(world: World, planner: Planner, me: str) -> str:
    """A planner that has just written knows what its turn took; otherwise inputs are lost, or looked at twice."""
    state, truth = known(world, planner), session(world.journal)
    if state.is_held_by(me) and state.turn and truth.turn and state.turn.inputs != truth.turn.inputs:
        return f"{me} goes on without knowing which inputs its turn took"
    return ""


def _answers(world: World, index: int, planner: Planner) -> Iterator[Move[World]]:
    me, at = name(index, planner), planner.cause[1]
    yield Move(f"{me} {planner.phase} {at}", _answered(world, index, planner))
    lost = spend(world, "lost_acks")
    if lost is not None and planner.phase == "acks" and any(each == at for each, _ in world.wakes):
        lost = _answered(lost, index, planner._replace(phase="keeps"))
        yield Move(f"{me} acks {at}, which is lost", lost, fair=False)


def _answered(world: World, index: int, planner: Planner) -> World:
    """The message in hand is acked, or comes again later; what the planner knows of a turn of its own it keeps."""
    at = planner.cause[1]
    mine = known(world, planner).is_held_by(name(index, planner))
    keeps = mine or planner.remembers
    rested = planner._replace(phase="", cause=("", 0, 0), spent=False) if keeps else Planner(planner.life)
    wakes = world.wakes
    if planner.phase != "leaves":
        wakes = acked(wakes, at) if planner.phase == "acks" else marked(wakes, at, AGAIN)
    return world._replace(wakes=wakes, planners=put(world.planners, index, rested))


def _crashes(setup: Setup, world: World, index: int, planner: Planner) -> Iterator[Move[World]]:
    dead = spend(world, "crashes")
    if dead is None or not (planner.phase or known(world, planner).is_held_by(name(index, planner))):
        return
    if planner.phase:
        dead = dead._replace(wakes=marked(dead.wakes, planner.cause[1], AGAIN))
    # It comes back, and looks at what its former self held. A write on its way may land late, or never.
    risen = Planner(planner.life + 1, "reads", ("start", 0, 1), remembers=planner.remembers)
    dead = _with(dead, index, risen if setup.planners_return else Planner(planner.life, "dead"))
    yield Move(
        f"{name(index, planner)} dies", on_its_way(dead, planner.write) if planner.write else dead, fair=False
    )


def _what(write: Write) -> str:
    kinds = [
        getattr(event, "kind", type(event).__name__)
        for event in (record_at((number,), 1).event for number in write.numbers)
    ]
    return " and ".join(map(str, kinds))
