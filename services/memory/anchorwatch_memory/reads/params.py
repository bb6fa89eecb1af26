"""The parameters of a request. An impossible filter value is an error: an empty list would mean "there were none"."""

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
    """A text parameter, if present.

    Raises:
        BadInput: it is not text.
    """
    value = params.get(name)
    if value is not None and not isinstance(value, str):
        raise BadInput(f"{name} must be text")
    return value


def required(params: Params, name: str) -> str:
    """A required text parameter.

    Raises:
        BadInput: it is missing, or not text.
    """
    value = text(params, name)
    if value is None:
        raise BadInput(f"{name} is missing")
    return value


def one_of(params: Params, name: str, values: Sequence[str]) -> str | None:
    """A parameter with a fixed set of values, if present.

    Raises:
        BadInput: it has another value.
    """
    value = text(params, name)
    if value is not None and value not in values:
        raise BadInput(f"unknown {name} {value[:80]!r}", hint=f"{name} is one of {', '.join(values)}")
    return value


def known_session(db: sqlite3.Connection, params: Params) -> str | None:
    """The name of an existing session, if present. Its anchor may be unreadable.

    Raises:
        NotFound: the session does not exist.
    """
    workspace, name = required(params, "workspace"), text(params, "session")
    if name is not None:
        found = db.execute("SELECT 1 FROM chains WHERE workspace = ? AND session = ?", (workspace, name))
        if found.fetchone() is None:
            raise no_session(name)
    return name


def no_session(name: str) -> NotFound:
    """The error for an unknown session."""
    return NotFound(f"there is no session {name[:80]}", hint="`anchorwatch sessions` lists them")
