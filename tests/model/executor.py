"""An executor: the order in which `pipeline.py` reads, decides and writes. It decides by the product's own code."""

from __future__ import annotations

from collections.abc import Iterator

from anchorwatch.core.effect import EffectState, next_action
from anchorwatch.core.effect.decide import (
    ClaimAgain,
    Judge,
    Liveness,
    MarkUnknown,
    Nothing,
    Wait,
)
from anchorwatch.core.effect.state import (
    Claimed,
    GateAsked,
    GateDecided,
    Outcome,
    Owner,
    Released,
)
from anchorwatch.core.names import CallId
from anchorwatch.core.session.events import CommandDecided

from tests.model import tool
from tests.model.hands import (
    answered,
    claiming,
    effect_of,
    name,
    outcome,
    owner,
    reads_upto,
    with_executor,
    writing,
)
from tests.model.journal import effect, last_of, record_at, records, session
from tests.model.rules import Setup
from tests.model.search import Move
from tests.model.world import (
    AGAIN,
    IN_HAND,
    NONE,
    Executor,
    World,
    acked,
    lands,
    marked,
    on_its_way,
    spend,
    waiting,
)


def moves(setup: Setup, world: World) -> Iterator[Move[World]]:
    """What executors may do now."""
    for index, executor in enumerate(world.executors):
        yield from PHASES[executor.phase](setup, world, index, executor)
        yield from _crashes(world, index, executor)


def _is_new(world: World, index: int) -> bool:
    """Whether nothing tells this executor from another that is new."""
    return world.executors[index] == Executor() and not any(
        isinstance(each.event, Claimed) and each.event.owner.instance == f"executor-{index}"
        for _, each in records(world.journal)
    )


def _takes(setup: Setup, world: World, index: int, executor: Executor) -> Iterator[Move[World]]:
    if any(_is_new(world, before) for before in range(index)):
        return  # symmetry: of executors that nothing tells apart, the first stands for all
    for at, attempt in waiting(world.orders):
        event = record_at(world.journal, at).event
        command = isinstance(event, CommandDecided)
        call = event.call if isinstance(event, CommandDecided) else record_at(world.journal, at).call
        taken = Executor(executor.life, "loads", at, attempt if command else attempt + 1, call or NONE)
        after = world._replace(orders=marked(world.orders, at, IN_HAND))
        if not setup.cures.acks_last:
            after = after._replace(orders=acked(world.orders, at))
        label = f"{name(index, executor)} takes {call} by {at}, delivery {attempt}"
        if taken.attempt == 1:
            # Nobody else can have seen it, so nothing is looked up.
            yield Move(label, _decided(setup, after, index, taken))
            continue
        for move in _loads(setup, after, index, taken):
            yield move._replace(label=f"{label}; {move.label}")


def _command_at(world: World, call: CallId) -> int:
    for at in range(1, len(world.journal) + 1):
        event = record_at(world.journal, at).event
        if isinstance(event, CommandDecided) and event.call == call:
            return at
    return 0


def _loads(setup: Setup, world: World, index: int, executor: Executor) -> Iterator[Move[World]]:
    answered = isinstance(record_at(world.journal, executor.message).event, GateDecided)
    least = executor.message if answered and setup.cures.answer_reaches else _command_at(world, executor.call)
    for then, upto in reads_upto(setup, world, least):
        loaded = executor._replace(head=last_of(world.journal[:upto], executor.call))
        after = _decided(setup, then, index, loaded)
        yield Move(f"loads up to {upto}", after, fair=upto == len(world.journal))


def _decided(setup: Setup, world: World, index: int, executor: Executor) -> World:
    """Where no liveness is to be asked, the decision follows at once."""
    state = effect_of(world, executor)
    if state.outcome is not None:
        return with_executor(world, index, executor._replace(phase="acks"))
    if state.claim is None:
        return with_executor(world, index, _acts(setup, world, index, executor, "unknown"))
    return with_executor(world, index, executor._replace(phase="judges"))


def _judges(setup: Setup, world: World, index: int, executor: Executor) -> Iterator[Move[World]]:
    """The claim's owner is asked after: a dead one is dead or silent, a living one alive, or silent for somebody else's fault."""
    claim = effect_of(world, executor).claim
    if claim is None:
        raise AssertionError("judged without a claim")
    number = int(claim.owner.instance[-1])
    dead = int(claim.owner.incarnation) < world.executors[number].life
    verdicts: list[tuple[Liveness, World | None]] = [
        ("dead" if dead else "alive", world),
        ("gone", spend(world, "suspicions")),
    ]
    for liveness, after in verdicts:
        if after is not None and not (liveness == "gone" and number == index):
            acts = _acts(setup, world, index, executor, liveness)
            yield Move(
                f"{name(index, executor)} finds {claim.owner.instance} {liveness}",
                with_executor(after, index, acts),
                liveness != "gone",
            )


def _acts(setup: Setup, world: World, index: int, executor: Executor, liveness: Liveness) -> Executor:
    state, me = effect_of(world, executor), owner(index, executor)
    if state.claim is not None and state.claim.owner == me:
        # Its answer was lost, or what was read is old: it is given back, if it stands, and claimed anew.
        if not setup.cures.confirms_own_claim:
            return executor._replace(phase="reads")
        return writing(setup, executor._replace(said="anew"), Released(me, "its answer was lost"))
    match next_action(state, setup.effect_class, me, liveness):
        case Nothing():
            return executor._replace(phase="acks")
        case Wait():
            return executor._replace(phase="keeps")
        case MarkUnknown(reason):
            return writing(setup, executor, outcome(executor.call, "unknown", reason))
        case ClaimAgain() if _paused(world):
            return executor._replace(phase="keeps")
        case ClaimAgain(doubt=doubt):
            return claiming(setup, executor, state, me, doubt=doubt)
        case Judge():
            return _admits(setup, world, executor, state, me)


def _admits(setup: Setup, world: World, executor: Executor, state: EffectState, me: Owner) -> Executor:
    if executor.call.n <= setup.gated and setup.cures.gate_is_read:
        if state.gate is None:
            return writing(
                setup, executor, GateAsked("gate", "binding", 0, _command_at(world, executor.call))
            )
        if state.approval is None:
            return executor._replace(phase="acks")
        if not state.approval.approved:
            return writing(setup, executor, outcome(executor.call, "refused", "no", rule="gate"))
    if executor.attempt > 1 and _paused(world):
        return executor._replace(phase="keeps")
    if setup.cures.read_fence == "before claim":
        return executor._replace(phase="reads")
    return claiming(setup, executor, state, me, doubt=False)


def _paused(world: World) -> bool:
    anchor = session(world.journal).anchor
    return anchor is not None and anchor.status in ("paused", "quarantined")


def _writes(setup: Setup, world: World, index: int, executor: Executor) -> Iterator[Move[World]]:
    write, me = executor.write, name(index, executor)
    if write is None:
        raise AssertionError("nothing to write")
    event = record_at(write.numbers, 1).event
    if write.expected < 0:
        write = write._replace(
            expected=last_of(world.journal[: max(executor.head, executor.message)], write.family)
        )
    after = lands(setup, world, write)
    idle = executor._replace(write=None)
    what = f"{type(event).__name__} {getattr(event, 'state', '')}".strip()
    if after is not None:
        after = _wrote(setup, after, index, idle._replace(head=len(after.journal)), event)
        yield Move(f"{me} writes {what} of {executor.call} at {len(after.journal)}", after)
    elif isinstance(event, Claimed) and not setup.cures.own_ids:
        yield Move(
            f"{me} is answered that its claim is a duplicate", _believes(setup, world, index, idle, event)
        )
    elif isinstance(event, Outcome) and executor.said == "ran":
        stands = effect(world.journal, executor.call, len(world.journal)).outcome is not None
        lets_go = stands or not setup.cures.late_keeps_message
        late = idle._replace(phase="acks" if lets_go else "keeps")
        yield Move(f"{me} is too late with its outcome", with_executor(world, index, late))
    else:
        # To load at once is to load at any time: until it is refused, a write does nothing.
        for move in _loads(setup, world, index, idle):
            yield move._replace(label=f"{me} is fenced; {move.label}")
    given_up = spend(world, "unanswered")
    if given_up is not None:
        # What was run is recorded, however long it takes; of anything else its message comes again.
        lost = executor if executor.said == "ran" else idle._replace(phase="keeps")
        yield Move(
            f"{me} hears nothing of its {what}",
            on_its_way(with_executor(given_up, index, lost), write),
            fair=False,
        )


def _believes(setup: Setup, world: World, index: int, executor: Executor, event: object) -> World:
    """The executor takes another's claim, of the same message id, for its own."""
    return _wrote(setup, world, index, executor._replace(head=last_of(world.journal, executor.call)), event)


def _wrote(setup: Setup, world: World, index: int, executor: Executor, event: object) -> World:
    if isinstance(event, Released) and executor.said == "anew":
        return _decided(setup, world, index, executor._replace(said=""))
    if isinstance(event, Claimed):
        executor = executor._replace(phase="reads" if setup.cures.read_fence == "after claim" else "sends")
    else:
        executor = executor._replace(phase="keeps" if isinstance(event, Released) else "acks")
    return with_executor(world, index, executor, wrote=True)


def _answers(_setup: Setup, world: World, index: int, executor: Executor) -> Iterator[Move[World]]:
    me, at = name(index, executor), executor.message
    yield Move(f"{me} {executor.phase} {at}", answered(world, index, executor))
    lost = spend(world, "lost_acks")
    if lost is not None and executor.phase == "acks" and any(each == at for each, _ in world.orders):
        yield Move(
            f"{me} acks {at}, which is lost",
            answered(lost, index, executor._replace(phase="keeps")),
            fair=False,
        )


def _crashes(world: World, index: int, executor: Executor) -> Iterator[Move[World]]:
    dead = spend(world, "crashes")
    if dead is None or not executor.phase:
        return
    dead = dead._replace(orders=marked(dead.orders, executor.message, AGAIN))
    dead = with_executor(dead, index, Executor(executor.life + 1))
    if executor.write is not None and executor.write.expected >= 0:
        dead = on_its_way(dead, executor.write)
    if executor.phase == "sent":
        # Its request is on its way, and may arrive late, or never.
        dead = dead._replace(requests=tuple(sorted((*dead.requests, executor.call))))
    yield Move(f"{name(index, executor)} dies", dead, fair=False)


PHASES = {
    "": _takes,
    "judges": _judges,
    "writes": _writes,
    "reads": tool.reads,
    "goes on": tool.reads,
    "sends": tool.sends,
    "sent": tool.sent,
    "asks": tool.asks,
    "asked": tool.asked,
    "acks": _answers,
}
"""What an executor does next. The fence is read once the claim stands, and again before the tool is started anew."""
