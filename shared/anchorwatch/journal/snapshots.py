"""The folded state of a session at rest, as plain data, and back. The field names are the wire format: docs/wire-format.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, astuple, fields
from typing import Any

from anchorwatch.codec import lift_anchor
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.names import CallId
from anchorwatch.core.session.critical import Labelled
from anchorwatch.core.session.spending import Spent, Tokens
from anchorwatch.core.session.state import (
    Archive,
    Call,
    Input,
    PastTurn,
    SeenObservation,
    SessionState,
    Step,
    Summary,
    Unsettled,
)

Body = Mapping[str, Any]


def state_body(state: SessionState) -> dict[str, Any]:
    """The folded state at rest, as plain data. Pending inputs are not in it: loading reads them again."""
    return {
        "anchor": state.anchor.to_json() if state.anchor else None,
        "anchor_sequence": state.anchor_sequence,
        "told": state.told.to_json() if state.told and state.told_sequence != state.anchor_sequence else None,
        "told_sequence": state.told_sequence,
        "told_digest": state.told_digest,
        "head": state.head,
        "head_digest": state.head_digest,
        "read_through": state.read_through,
        "summary": _summary_body(state.summary),
        "history": [_past_body(past) for past in state.history],
        "archives": [
            {
                "reset": each.reset,
                "summary": _summary_body(each.summary),
                "turns": [_past_body(past) for past in each.turns],
            }
            for each in state.archives
        ],
        "critical": [list(astuple(each)) for each in state.critical],
        "passed_over": list(state.passed_over),
        "spent": asdict(state.spent),
        "refused": state.refused,
        "unsettled": [
            [each.call.run, each.call.step, each.call.n, each.pool, each.resource] for each in state.unsettled
        ],
    }


def read_state(body: Body, sequence: int) -> SessionState:
    """The state in the snapshot record at ``sequence``."""
    anchor: Anchor | None = lift_anchor(body["anchor"]) if body["anchor"] else None
    return SessionState(
        anchor=anchor,
        anchor_sequence=body["anchor_sequence"],
        told=lift_anchor(body["told"]) if body["told"] else anchor,
        told_sequence=body["told_sequence"],
        told_digest=body["told_digest"],
        head=body["head"],
        head_digest=body["head_digest"],
        read_through=body["read_through"],
        summary=_read_summary(body.get("summary")),
        history=tuple(_read_past(past) for past in body["history"]),
        archives=tuple(
            Archive(each["reset"], _read_summary(each["summary"]), tuple(map(_read_past, each["turns"])))
            for each in body.get("archives", ())
        ),
        critical=tuple(
            Labelled(each) if isinstance(each, str) else Labelled(*each) for each in body["critical"]
        ),
        passed_over=tuple(body.get("passed_over", ())),
        spent=_read_spent(body.get("spent")),
        refused=body.get("refused", 0),
        unsettled=tuple(
            Unsettled(CallId(run, step, n), pool, resource)
            for run, step, n, pool, resource in body.get("unsettled", ())
        ),
        snapshot_sequence=sequence,
    )


def _summary_body(summary: Summary | None) -> dict[str, Any] | None:
    return asdict(summary) if summary else None


def _read_summary(body: Body | None) -> Summary | None:
    return Summary(**body) if body else None


def _read_spent(body: Body | None) -> Spent:
    if body is None:
        return Spent()
    return Spent(body["day"], *(Tokens(**body[name]) for name in ("turn", "today", "ever")))


# A turn takes no input that was settled from the first.
_INPUT = tuple(each.name for each in fields(Input) if each.name not in ("settled", "why"))
_CALL = tuple(each.name for each in fields(Call))


def _past_body(past: PastTurn) -> dict[str, Any]:
    return {
        "run_id": past.run_id,
        "outcome": past.outcome,
        "reason": past.reason,
        "inputs": [_picked(each, _INPUT) for each in past.inputs],
        "skipped": past.skipped,
        "steps": [
            {
                "number": step.number,
                "text": step.text,
                "calls": [_picked(each, _CALL) for each in step.calls],
                "observation": seen_body(step.observation) if step.observation else None,
                "joined": [_picked(each, _INPUT) for each in step.joined],
            }
            for step in past.steps
        ],
        "tally": [list(each) for each in past.tally],
        "refused": past.refused,
        "held_since": past.held_since,
    }


def _picked(value: Input | Call, names: Iterable[str]) -> dict[str, Any]:
    """These fields of it. A history has hundreds: `asdict`, which copies whatever they hold, takes twenty times as long."""
    return {name: getattr(value, name) for name in names}


def _read_past(body: Body) -> PastTurn:
    return PastTurn(
        run_id=body["run_id"],
        outcome=body["outcome"],
        reason=body["reason"],
        inputs=tuple(Input(**each) for each in body["inputs"]),
        skipped=body["skipped"],
        steps=tuple(
            Step(
                number=step["number"],
                text=step["text"],
                calls=tuple(Call(**call) for call in step["calls"]),
                observation=read_seen(step["observation"]),
                joined=tuple(Input(**each) for each in step.get("joined", ())),
            )
            for step in body["steps"]
        ),
        tally=tuple((family, count) for family, count in body.get("tally", ())),
        refused=body.get("refused", 0),
        held_since=body.get("held_since", 0),
    )


def read_seen(body: Body | None) -> SeenObservation | None:
    """What the model saw at a step, from plain data."""
    if not body:
        return None
    return SeenObservation(body["digest"], body["at_ms"], body["text"], body.get("facts", {}))


def seen_body(seen: SeenObservation) -> dict[str, Any]:
    """What the model saw at a step, as plain data."""
    body: dict[str, Any] = {"digest": seen.digest, "at_ms": seen.at_ms, "text": seen.text}
    return {**body, "facts": dict(seen.facts)} if seen.facts else body
