"""The session anchor: the small working memory that survives runs, restarts, compaction and resets."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from anchorwatch.core.errors import Damaged, TooLarge

SCHEMA = 3
ANCHOR_BYTES_MAX = 16 * 1024

Status = Literal["idle", "active", "paused", "quarantined", "deleted"]
RunOutcome = Literal["success", "no_action", "unresolved", "failed", "cancelled", "over_budget"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class TurnMark(_Part):
    """The running turn. ``woken_by``: journal sequence of the message that its planner holds (0: a sweep found it)."""

    id: str
    started_at: str
    woken_by: int = Field(ge=0)
    inputs_through: int = Field(ge=0)


class Fence(_Part):
    """Commands of a run below ``run`` must not start any more."""

    run: int = Field(ge=0)


class PromptProof(_Part):
    """Which anchor stood in the last prompt: the sequence and digest of its record, and the digest and size of the request."""

    anchor_revision: int
    anchor_sha256: str
    sha256: str
    tokens: int
    model: str


class Pace(_Part):
    """The account of an agent's limits (`core.session.pacing`): when the last turn began, when its bucket is full again."""

    started_at: str
    full_at: str | None = None


class Anchor(_Part):
    """The anchor, whole. Field by field: docs/wire-format.md."""

    schema_: Literal[3] = Field(3, alias="schema")
    workspace: str
    session: str
    agent: str
    status: Status = "idle"
    run_id: int = Field(0, ge=0)
    generation: int = Field(0, ge=0)
    execution_id: str | None = None
    turn: TurnMark | None = None
    fence: Fence = Fence(run=0)
    run_count: int = Field(0, ge=0)
    last_run_id: int = Field(0, ge=0)
    last_run_timestamp: str | None = None
    last_run_outcome: RunOutcome | None = None
    last_run_reason: str = ""
    runs_without_progress: int = Field(0, ge=0)
    inputs_through: int = Field(0, ge=0)
    inputs_joined: tuple[int, ...] = ()
    inputs_refused: int = Field(0, ge=0)
    next_check_at: str | None = None
    pace: Pace | None = None
    reset_count: int = Field(0, ge=0)
    objectives: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    facts: dict[str, Any] = Field(default_factory=dict)
    prompt: PromptProof | None = None

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)

    def to_json(self) -> dict[str, Any]:
        """The anchor as the JSON object that is stored."""
        return self.model_dump(mode="json", by_alias=True)


def read_anchor(value: dict[str, Any]) -> Anchor:
    """Check a stored anchor of this release's schema (`anchorwatch.codec.lift_anchor` knows the others).

    Raises:
        Damaged: it breaks the schema.
    """
    try:
        return Anchor.model_validate(value, strict=False)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Damaged(f"the anchor breaks its schema at {where or 'the top'}: {first['msg']}") from None


def check_size(size_bytes: int) -> None:
    """Refuse an anchor above 16 KiB.

    Raises:
        TooLarge: nothing is cut off silently.
    """
    if size_bytes > ANCHOR_BYTES_MAX:
        raise TooLarge(
            f"the anchor would be {size_bytes} bytes, the limit is {ANCHOR_BYTES_MAX}",
            hint="shorten objectives, constraints or the pack's facts",
        )
