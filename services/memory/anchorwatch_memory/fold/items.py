"""The conversation: messages, tool calls and their results, observations, notes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from anchorwatch.core.session.events import StepHead
from anchorwatch.journal.reading import Opened

from anchorwatch_memory.schema import as_json, insert

PLACES = 1024
"""Items in one record, at most."""


@dataclass(frozen=True, slots=True)
class Item:
    """One entry of the conversation."""

    type: str
    role: str
    content: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """The run, turn and step of an item."""

    run_id: int
    turn_id: str | None
    step: int | None


def item_id(sequence: int, place: int) -> int:
    """The id of an item, in the order of the journal and within its record."""
    return sequence * PLACES + place


def add(db: sqlite3.Connection, opened: Opened, new: Iterable[Item], where: Place | None = None) -> None:
    """Enter the items of a record, in order."""
    ref = opened.register.ref
    for place, item in enumerate(new):
        insert(
            db,
            "items",
            id=item_id(opened.stored.sequence, place),
            workspace=ref.workspace,
            session=ref.session,
            sequence=opened.stored.sequence,
            type=item.type,
            role=item.role,
            at_ms=opened.record.at_ms,
            run_id=where.run_id if where else None,
            turn_id=where.turn_id if where else None,
            step=where.step if where else None,
            content=as_json(item.content),
        )


def of_head(head: StepHead) -> list[Item]:
    """The items of a step beside its commands: observation, text, and rejected calls."""
    found = []
    if head.observation is not None and head.observation.text:
        seen = {"text": head.observation.text, "digest": head.observation.digest}
        found.append(Item("observation", "system", seen))
    if head.text:
        found.append(Item("message", "assistant", {"text": head.text}))
    for n, tool, label, raw, reason in head.rejected:
        found.append(Item("tool_call", "assistant", {"n": n, "tool": tool, "label": label, "raw": raw}))
        found.append(Item("tool_result", "tool", {"n": n, "tool": tool, "state": "rejected", "text": reason}))
    return found
