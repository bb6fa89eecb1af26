"""Steps, the commands that they decided, and what their model calls used."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from anchorwatch.core.names import SessionRef
from anchorwatch.core.session.events import StepHead
from anchorwatch.core.session.spending import DAY_MS, RESERVED, used
from anchorwatch.journal.mapping import read_command
from anchorwatch.journal.reading import Opened

from anchorwatch_memory.fold import items, wakes
from anchorwatch_memory.fold.effects import decided
from anchorwatch_memory.schema import as_json, insert


def command(db: sqlite3.Connection, opened: Opened) -> None:
    """A command. The first one of a step has the step's head."""
    decision = read_command(opened.register.pool, opened.record.body)
    call = items.Item(
        "tool_call",
        "assistant",
        {
            "n": decision.call.n,
            "call": f"{opened.register.ref.session}/{decision.call}",
            "tool": decision.tool,
            "args": dict(decision.args),
            "label": decision.label,
        },
    )
    if decision.head is not None:
        step(db, opened, decision.call.run, decision.head, [call])
    else:
        place = items.Place(decision.call.run, decision.turn_id, decision.call.step)
        items.add(db, opened, [call], place)
    decided(db, opened, decision)


def step(
    db: sqlite3.Connection, opened: Opened, run_id: int, head: StepHead, calls: Sequence[items.Item] = ()
) -> None:
    """A step: what the model saw and decided. ``calls``: its command in the same record."""
    ref = opened.register.ref
    turn = db.execute(
        "SELECT turn_id FROM turns WHERE workspace = ? AND session = ? AND run_id = ?",
        (ref.workspace, ref.session, run_id),
    ).fetchone()
    insert(
        db,
        "steps",
        sequence=opened.stored.sequence,
        workspace=ref.workspace,
        session=ref.session,
        run_id=run_id,
        step=head.step,
        at_ms=opened.record.at_ms,
        text=head.text,
        calls=head.calls,
        observation=as_json(_observation(head)) if head.observation else None,
        prompt=as_json(asdict(head.prompt)) if head.prompt else None,
        usage=as_json(dict(head.usage)),
        rejected=as_json([list(each) for each in head.rejected]),
        context=as_json(dict(head.context)),
    )
    spend(db, ref, run_id, head.usage, head.observation.at_ms if head.observation else opened.record.at_ms)
    wakes.settle(db, ref, run_id)
    wakes.join(db, ref, (run_id, turn[0] if turn else None, head.step), head.joined)
    place = items.Place(run_id, turn[0] if turn else None, head.step)
    items.add(db, opened, [*items.of_head(head), *calls], place)


def _observation(head: StepHead) -> dict[str, object]:
    """The observation without its text, which is an item of the conversation."""
    assert head.observation is not None  # noqa: S101 - checked by the caller
    return {"digest": head.observation.digest, "at_ms": head.observation.at_ms}


def spend(db: sqlite3.Connection, ref: SessionRef, run_id: int, usage: Mapping[str, Any], at_ms: int) -> None:
    """Enter a recorded usage. A reservation is a call, unless it is settled without any answer."""
    if not usage:
        return
    tokens, settles, answered = used(usage), RESERVED in usage, "prompt" in usage
    db.execute(
        "INSERT INTO spending VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET calls = calls + excluded.calls,"
        " prompt = prompt + excluded.prompt, completion = completion + excluded.completion, micros = micros + excluded.micros,"
        " estimated = estimated + excluded.estimated",
        (
            ref.workspace,
            ref.session,
            run_id,
            at_ms // DAY_MS,
            answered - settles,
            tokens.prompt,
            tokens.completion,
            tokens.micros,
            tokens.estimated,
        ),
    )


def spend_on_request(db: sqlite3.Connection, ref: SessionRef, body: Mapping[str, Any]) -> None:
    """Enter a model request: what it reserves, and the answers discarded before it."""
    for usage in (body.get("usage", {}), body["reserves"]):
        spend(db, ref, body["run"], usage, body["at_ms"])
