"""What must hold: of each record as it is stored, and of what was done outside."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from anchorwatch.core.effect.state import Claimed, GateDecided, Outcome
from anchorwatch.core.names import CallId
from anchorwatch.core.records import Kind
from anchorwatch.core.session.events import AnchorChanged, CommandDecided
from anchorwatch.core.tools import EffectClass

from tests.model.journal import (
    Journal,
    Record,
    anchors,
    commands,
    effect,
    fenced_at,
    last_of,
    record_at,
    records,
    session,
)

if TYPE_CHECKING:
    from tests.model.rules import Setup
    from tests.model.world import World

_REMEMBERED = 400_000
TAKEOVERS_MAX = 6
"""More than any configuration here has reasons for."""


@lru_cache(maxsize=_REMEMBERED)
def broken_by(journal: Journal) -> str:
    """What the last record of the journal breaks, given those before it."""
    before, sequence = journal[:-1], len(journal)
    record = record_at(journal, sequence)
    if record.register.startswith("p."):
        return _chain(before, record) or _planner(journal, before, record)
    if isinstance(record.event, Outcome):
        return _outcome(before, record.event)
    return ""


def _chain(before: Journal, record: Record) -> str:
    if record.previous >= 0 and record.previous != last_of(before, "p"):
        return f"fork: a record that follows {record.previous} stands behind {last_of(before, 'p')}"
    return ""


def _planner(journal: Journal, before: Journal, record: Record) -> str:
    event, was = record.event, session(before).anchor
    if isinstance(event, CommandDecided):
        if any(event.call == other.call for _, other in commands(before)):
            return f"command {event.call} is decided twice"
        if was is not None and event.generation != was.generation:
            return f"a planner of generation {event.generation} decides in generation {was.generation}"
    if isinstance(event, AnchorChanged) and was is not None:
        if event.anchor.generation < was.generation or event.anchor.fence.run < was.fence.run:
            return "generation or fence went back"
        if event.anchor.run_id not in (was.run_id, was.run_id + 1):
            return f"run {event.anchor.run_id} follows run {was.run_id}"
        if event.kind == Kind.ACQUIRED:
            return _inputs(journal)
        if event.kind == Kind.TAKEN_OVER and _takeovers(before, event.anchor.run_id) >= TAKEOVERS_MAX:
            return f"planners take over run {event.anchor.run_id} from each other for ever"
    return ""


def _takeovers(journal: Journal, run: int) -> int:
    return sum(
        change.kind == Kind.TAKEN_OVER and change.anchor.run_id == run for _, change in anchors(journal)
    )


def _inputs(journal: Journal) -> str:
    """Each input is taken by one turn, unless a person disposed of it; none is passed over."""
    taken: list[int] = []
    disposed: set[int] = set()
    through = 0
    for at, record in records(journal):
        event, head = record.event, getattr(record.event, "head", None)
        taken += head.joined if head is not None else ()
        if not isinstance(event, AnchorChanged):
            continue
        turn = session(journal[:at]).turn
        if event.kind == Kind.ACQUIRED and turn is not None and event.anchor.turn is not None:
            taken += [each.sequence for each in turn.inputs]
            through = max(through, event.anchor.turn.inputs_through)
        elif event.kind in (Kind.RESET, Kind.WAKES_CLEARED):
            disposed |= {each.sequence for each in session(journal[: at - 1]).pending}
        if event.kind == Kind.ACQUIRED and turn is not None and not turn.inputs:
            return f"turn {turn.run_id} begins without an input"
    if len(taken) != len(set(taken)):
        return f"an input is taken by two turns: {taken}"
    accepted = {at for at, each in records(journal) if each.register == "in" and at <= through}
    return (
        ""
        if accepted <= set(taken) | disposed
        else f"no turn took {sorted(accepted - set(taken) - disposed)}"
    )


def _outcome(before: Journal, done: Outcome) -> str:
    state = effect(before, done.call, len(before))
    if state.outcome is not None:
        return f"two outcomes of {done.call}: {state.outcome.state}, then {done.state}"
    turn = session(before).turn
    if done.rule == "fence" and turn is not None and turn.run_id == done.call.run:
        return f"{done.call} is refused although its run goes on"
    return ""


def broken_outside(setup: Setup, world: World) -> str:
    """What was done outside and should not have been, or is said otherwise."""
    journal = world.journal
    for _, command in commands(journal):
        call = command.call
        times = world.done.count(call)
        if times > 1 and setup.effect_class is not EffectClass.IDEMPOTENT:
            return f"{call} was done {times} times"
        if times and call in world.safe:
            return f"{call} was done although the canceller was told that it will not run"
        outcome = effect(journal, call, len(journal)).outcome
        if outcome is not None and times and outcome.state in ("refused", "failed"):
            return f"{call} is said to be {outcome.state}, and was done"
        if outcome is not None and outcome.state == "succeeded" and not times and setup.executors:
            return f"{call} is said to be done, and was not"
    return ""


def broken_start(setup: Setup, journal: Journal, call: CallId, claim: int) -> str:
    """Whether an effect may start under the claim at sequence ``claim``."""
    fence = fenced_at(journal, call.run)
    if 0 < fence < claim:
        return f"{call} starts under claim {claim}, after the fence at {fence}"
    if call.n > setup.gated:
        return ""
    decided = [
        each.event
        for _, each in records(journal)
        if each.call == call and isinstance(each.event, GateDecided)
    ]
    return "" if any(each.approved for each in decided) else f"{call} starts without an approval"


def claims(journal: Journal, call: CallId) -> list[int]:
    """The sequences of a command's claims."""
    return [at for at, each in records(journal) if each.call == call and isinstance(each.event, Claimed)]
