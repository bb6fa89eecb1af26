"""What a list may be narrowed by. A value that nothing can have is refused: an empty list would read as "there was none"."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from anchorwatch.core.anchor import Status
from anchorwatch.core.effect.state import OutcomeState
from anchorwatch.core.errors import BadInput, NotFound
from anchorwatch.core.session.state import InputKind
from anchorwatch.core.session.wakes import Disposition
from anchorwatch.journal.deliveries import DeliveryState

Params = Mapping[str, Any]

SESSION_STATUSES: tuple[str, ...] = get_args(Status)
TURN_STATUSES = ("in_progress", "waiting", "completed", "failed", "cancelled")
ITEM_TYPES = ("message", "tool_call", "tool_result", "observation", "note")
DISPOSITIONS: tuple[str, ...] = ("pending", *get_args(Disposition))
WAKE_KINDS: tuple[str, ...] = (*get_args(InputKind), "outcome", "control")
EFFECT_STATES: tuple[str, ...] = ("pending", "gated", "claimed", *get_args(OutcomeState))
DELIVERY_STATES: tuple[str, ...] = get_args(DeliveryState)


def text(params: Params, name: str) -> str | None:
    """A parameter that is text, where it is given.

    Raises:
        BadInput: it is something else.
    """
    value = params.get(name)
    if value is not None and not isinstance(value, str):
        raise BadInput(f"{name} must be text")
    return value


def needed(params: Params, name: str) -> str:
    """A parameter that must be given.

    Raises:
        BadInput: it is not.
    """
    value = text(params, name)
    if value is None:
        raise BadInput(f"{name} is missing")
    return value


def one_of(params: Params, name: str, values: Sequence[str]) -> str | None:
    """A parameter with a closed set of values, where it is given.

    Raises:
        BadInput: it is none of them.
    """
    value = text(params, name)
    if value is not None and value not in values:
        raise BadInput(
            f"there is no {name} {value[:80]!r}",
            hint=f"{name} is one of {', '.join(values)}; or leave it out",
        )
    return value


def known_session(db: sqlite3.Connection, params: Params) -> str | None:
    """The name of a session that has records, where one is given. Its anchor may be one that cannot be read.

    Raises:
        NotFound: there is no such session.
    """
    workspace, name = needed(params, "workspace"), text(params, "session")
    if name is not None:
        found = db.execute("SELECT 1 FROM chains WHERE workspace = ? AND session = ?", (workspace, name))
        if found.fetchone() is None:
            raise no_session(name)
    return name


def no_session(name: str) -> NotFound:
    """There is no session of that name."""
    return NotFound(f"there is no session {name[:80]}", hint="`anchorwatch sessions` lists them")
