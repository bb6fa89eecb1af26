"""Renders the requests of a past turn again from the journal, to prove what a model saw or to ask another model. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anchorwatch.context.ladder import Rung
from anchorwatch.context.template import TEMPLATE
from anchorwatch.core.facts import Observation
from anchorwatch.core.session.apply import Recorded, apply
from anchorwatch.core.session.events import (
    AnchorChanged,
    CommandDecided,
    InputAccepted,
    OutcomeRecorded,
    StepDecided,
    StepHead,
)
from anchorwatch.core.session.state import SessionState


@dataclass(frozen=True, slots=True)
class Decided:
    """The decision of a step: its text, and its calls as (tool, arguments)."""

    text: str
    calls: tuple[tuple[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """A step of a past turn: the inputs of its request, and its record.

    ``agent``: the ``name@version`` that decided. ``why_not``: why the request cannot be rendered again; empty if it can.
    """

    head: StepHead
    state: SessionState
    observation: Observation
    rung: Rung
    agent: str
    decided: Decided
    why_not: str = ""


def asked(records: Sequence[Recorded], run: int) -> list[Asked]:
    """The steps of ``run``, from all records of its session in their order."""
    heads = [(record, found) for record in records if (found := _head_of(record, run)) is not None]
    return [_asked(records, record, head) for record, head in heads]


def _head_of(record: Recorded, run: int) -> StepHead | None:
    match record.event:
        case CommandDecided(call=call, head=head) if call.run == run:
            return head
        case StepDecided(run=of, head=head) if of == run:
            return head
        case AnchorChanged(anchor=anchor, head=head) if anchor.last_run_id == run:
            return head
        case _:
            return None


def _asked(records: Sequence[Recorded], at: Recorded, head: StepHead) -> Asked:
    state = _state_before(records, at, head)
    seen = head.observation
    observation = Observation(
        seen.text if seen else "",
        seen.facts if seen else {},
        seen.at_ms if seen else 0,
        seen.digest if seen else "",
    )
    name = str(head.context.get("rung", ""))
    rung = Rung[name.upper()] if name.upper() in Rung.__members__ else Rung.WHOLE
    agent = state.anchor.agent if state.anchor else ""
    return Asked(head, state, observation, rung, agent, _decided(records, at, head), _why_not(head))


def _why_not(head: StepHead) -> str:
    if head.prompt is None:
        return "no request was recorded at this step"
    template = head.context.get("template")
    if template is None:
        return "its record does not name the prompt template"
    return (
        "" if template == TEMPLATE else f"it used the prompt template {template}; this release has {TEMPLATE}"
    )


def _state_before(records: Sequence[Recorded], at: Recorded, head: StepHead) -> SessionState:
    """The planner's state at the step: its own records up to one sequence, and the others' up to another."""
    own_through, others_through = head.context.get("read", (at.sequence - 1, at.sequence - 1))
    state = SessionState()
    for record in records:
        if record.sequence >= at.sequence:
            break
        match record.event:
            case InputAccepted():
                known = record.sequence <= others_through
            case OutcomeRecorded(call=call):
                # A running turn has read all its outcomes before it continues.
                known = record.sequence <= others_through or _is_running(state, call.run)
            case _:
                known = record.sequence <= own_through
        if known:
            state = apply(state, record)
    return state


def _is_running(state: SessionState, run: int) -> bool:
    return state.turn is not None and state.turn.run_id == run


def _decided(records: Sequence[Recorded], at: Recorded, head: StepHead) -> Decided:
    calls = []
    if isinstance(at.event, CommandDecided):
        step = at.event.call
        calls = [
            (record.event.tool, dict(record.event.args))
            for record in records
            if isinstance(record.event, CommandDecided)
            and (record.event.call.run, record.event.call.step) == (step.run, step.step)
        ]
    return Decided(head.text, (*calls, *((tool, raw) for _, tool, _, raw, _ in head.rejected)))
