"""What clients get back, as far as it has a fixed form."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class Receipt(BaseModel):
    """Proof that an input was accepted, sent after the journal acknowledged it."""

    input_id: str
    session: str
    sequence: int = Field(description="where it stands in the journal")
    accepted_at: str
    replayed: bool = Field(description="the same request had been accepted before; this is its receipt")
    session_status: str = Field(description="a paused session keeps the input until it is resumed")
    kill_switches: list[dict[str, Any]] | None = Field(
        None,
        description="those that are on and hold it, as `/api/kill-switches` shows them; null: not known now",
    )
    idempotency_key: str
    artifact_id: str | None = Field(
        None, description="where a content is kept that was too long for the record"
    )


class Control(BaseModel):
    """Proof that an order was carried out, sent after the journal acknowledged it."""

    control_id: str
    session: str
    kind: str = Field(description="what the anchor's record says: paused, cancelled, reset, …")
    sequence: int = Field(description="where that record stands in the journal")
    at: str
    by: str
    replayed: bool = Field(description="the same request had been carried out before; this is its answer")
    session_status: str
    kill_switches: list[dict[str, Any]] | None = Field(
        None,
        description="those that are on and hold it, as `/api/kill-switches` shows them; null: not known now",
    )
    idempotency_key: str
    run_id: int = Field(description="the session's current or last turn")
    more: dict[str, Any] = Field(description="what else the record says, by name")
    canary: str | None = Field(None, description="the input that has a turn run behind a reset")
    never_start: list[str] = Field(default_factory=list, description="commands that cannot run any more")
    too_late: list[dict[str, Any]] = Field(
        default_factory=list,
        description="commands that may have run, or may still run; also reads, which need no claim",
    )


class Shown(BaseModel):
    """What a reset would do."""

    session: str
    status: str
    archived: dict[str, Any]
    kept: dict[str, Any]
    disposed: dict[str, Any]
    cancelled_turn: str | None
    confirmation: str = Field(description="for the reset: it fails once the session has changed")


class Published(BaseModel):
    """Proof that an event was stored."""

    id: str
    sequence: int = Field(description="where it stands in the stream EVENTS")
    duplicate: bool = Field(description="an event of this id was stored a moment ago; this is its place")
    kill_switches: list[dict[str, Any]] | None = Field(
        None, description="those that are on and hold a session that the event goes to; null: not known now"
    )


class Session(BaseModel):
    """A session, from its anchor."""

    name: str
    workspace: str
    agent: str
    agent_version: int
    status: str
    created: bool = Field(description="made by this request, or there before")
    sequence: int = Field(description="where its anchor stands in the journal")
    objectives: list[str]
    constraints: list[str]


class Settled(BaseModel):
    """An effect that was `unknown`, and how a person settled it."""

    call: str
    session: str
    tool: str
    resource: str
    verdict: str
    note: str
    by: str = Field(description="who settled it")
    at: str
    sequence: int = Field(description="where its outcome stands in the journal")
    replayed: bool = Field(description="the same request had settled it before; this is its answer")
    idempotency_key: str


class Page(BaseModel):
    """One page of a list. ``next``: the cursor of the page behind it; none: this is the last."""

    data: list[dict[str, Any]]
    next: str | None
