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
    idempotency_key: str
    artifact_id: str | None = Field(
        None, description="where a content is kept that was too long for the record"
    )


class Published(BaseModel):
    """Proof that an event was stored."""

    id: str
    sequence: int = Field(description="where it stands in the stream EVENTS")
    duplicate: bool = Field(description="an event of this id was stored a moment ago; this is its place")


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
