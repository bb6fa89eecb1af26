"""An executor under a claim: the fence, the tool, and the provider's word (`pipeline.py`, `attempts.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from anchorwatch.core.effect.decide import (
    Deferred,
    FencedOff,
    Proceed,
    after_claim,
    after_reconcile,
)
from anchorwatch.core.effect.state import (
    OutcomeState,
    Released,
)
from anchorwatch.core.names import CallId
from anchorwatch.core.tools import EffectClass

from tests.model.hands import (
    claiming,
    effect_of,
    name,
    outcome,
    owner,
    reads_upto,
    with_executor,
    writing,
)
from tests.model.journal import session
from tests.model.properties import broken_start
from tests.model.rules import Setup
from tests.model.search import Move
from tests.model.world import (
    Executor,
    World,
    spend,
)


def reads(setup: Setup, world: World, index: int, executor: Executor) -> Iterator[Move[World]]:
    claim = effect_of(world, executor).claim
    for after, upto in reads_upto(setup, world, claim.sequence if claim else executor.message):
        found = _fence(setup, world, executor, upto)
        then = (
            _goes_on(setup, executor, found)
            if executor.phase == "goes on"
            else _under_claim(setup, index, world, executor, found)
        )
        fair = upto == len(world.journal)
        yield Move(
            f"{name(index, executor)} reads the anchor up to {upto}: {type(found).__name__}",
            with_executor(after, index, then),
            fair,
        )


def _fence(setup: Setup, world: World, executor: Executor, upto: int) -> Proceed | FencedOff | Deferred:
    anchor = session(world.journal[:upto]).anchor
    if anchor is None:
        raise AssertionError("a command's session has an anchor")
    found = after_claim(effect_of(world, executor), executor.call.run, anchor)
    if isinstance(found, FencedOff) and not setup.cures.refused_on_first_claim_only:
        return FencedOff(first=True)
    return found


def _under_claim(
    setup: Setup, index: int, world: World, executor: Executor, found: Proceed | FencedOff | Deferred
) -> Executor:
    state = effect_of(world, executor)
    again = state.claim is not None and state.claim.sequence != state.first_claim
    reconciles = setup.effect_class is EffectClass.RECONCILABLE
    match found:
        case Proceed() if state.claim is None:
            return claiming(setup, executor, state, owner(index, executor), doubt=False)
        case Proceed():
            return executor._replace(phase="asks" if again and reconciles else "sends")
        case FencedOff(first=True):
            return writing(
                setup, executor, outcome(executor.call, "refused", "its run is over", rule="fence")
            )
        case FencedOff() if reconciles:
            return executor._replace(phase="asks")
        case FencedOff():
            return writing(setup, executor, outcome(executor.call, "unknown", "its first executor died"))
        case Deferred() if state.claim is None:
            return executor._replace(phase="keeps")
        case Deferred():
            return writing(setup, executor, Released(owner(index, executor), "paused"))


def _goes_on(setup: Setup, executor: Executor, found: Proceed | FencedOff | Deferred) -> Executor:
    """Whether the tool may be started once more, after the provider said that it was not done."""
    if isinstance(found, Proceed):
        return executor._replace(phase="sends")
    if isinstance(found, Deferred):
        return executor
    state: OutcomeState = "failed" if executor.settled else "unknown"
    return writing(
        setup, executor._replace(said="ran"), outcome(executor.call, state, "it was not done so far")
    )


def sends(setup: Setup, world: World, index: int, executor: Executor) -> Iterator[Move[World]]:
    claim = effect_of(world, executor).claim
    broken = broken_start(setup, world.journal, executor.call, claim.sequence if claim else 0)
    after = with_executor(world, index, executor._replace(phase="sent", settled=False))
    yield Move(f"{name(index, executor)} sends {executor.call}", after._replace(broken=broken))


def arrives(setup: Setup, world: World, call: CallId) -> World:
    """A request reaches the provider."""
    if (setup.effect_class is EffectClass.IDEMPOTENT or setup.rejects_used_key) and call in world.done:
        return world
    return world._replace(done=tuple(sorted((*world.done, call))))


def sent(setup: Setup, world: World, index: int, executor: Executor) -> Iterator[Move[World]]:
    me, call = name(index, executor), executor.call
    ran = writing(setup, executor._replace(said="ran"), outcome(call, "succeeded", "done"))
    yield Move(f"{me} does {call}", with_executor(arrives(setup, world, call), index, ran))
    lost = spend(world, "timeouts")
    if lost is not None:
        lost = lost._replace(requests=tuple(sorted((*world.requests, call))))
        yield Move(
            f"{me} gets no answer about {call}",
            with_executor(lost, index, _unanswered(setup, executor)),
            fair=False,
        )


def _unanswered(setup: Setup, executor: Executor) -> Executor:
    match setup.effect_class:
        case EffectClass.RECONCILABLE:
            return executor._replace(phase="asks")
        case EffectClass.IDEMPOTENT:
            return executor._replace(phase="goes on")
        case _:
            return writing(
                setup, executor._replace(said="ran"), outcome(executor.call, "unknown", "no answer")
            )


def _settled(setup: Setup, world: World, call: CallId) -> bool:
    """Whether all that dead or deaf owners had sent has arrived, or never will: the settle time has passed."""
    return call not in world.requests or not setup.cures.waits_to_settle


def asks(setup: Setup, world: World, index: int, executor: Executor) -> Iterator[Move[World]]:
    call = executor.call
    said = "done" if call in world.done else "not_done"
    asked = executor._replace(phase="asked", said=said, settled=_settled(setup, world, call))
    yield Move(f"{name(index, executor)} asks about {call}: {said}", with_executor(world, index, asked))


def asked(setup: Setup, world: World, index: int, executor: Executor) -> Iterator[Move[World]]:
    state, call = effect_of(world, executor), executor.call
    settled = executor.settled if setup.cures.settled_before_asking else _settled(setup, world, call)
    found: Literal["done", "not_done"] = "done" if executor.said == "done" else "not_done"
    doubt = state.doubt and setup.cures.keeps_doubt
    next_ = after_reconcile(found, rejects_used_key=setup.rejects_used_key, settled=settled, doubt=doubt)
    ran = executor._replace(said="ran", settled=settled)
    match next_:
        case "record":
            then = writing(setup, ran, outcome(call, "succeeded", "it was done"))
        case "run":
            then = ran._replace(phase="goes on", said="")
        case "wait":
            then = ran._replace(phase="asks", said="")
        case _:
            then = writing(setup, ran, outcome(call, "unknown", "it may be done yet"))
    yield Move(f"{name(index, executor)} concludes: {next_}", with_executor(world, index, then))
