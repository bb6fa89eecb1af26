"""The session anchor: the small working memory that survives runs, restarts, compaction and resets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from anchorwatch.core.emergency import OpenEmergency
from anchorwatch.core.errors import Damaged, TooLarge

SCHEMA: Final = 1
ANCHOR_BYTES_MAX = 16 * 1024

Status = Literal["idle", "active", "paused", "quarantined", "deleted"]
RunOutcome = Literal["success", "no_action", "unresolved", "failed", "cancelled", "over_budget"]


Count = Annotated[int, Field(ge=0)]
_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class TurnMark:
    """The running turn. ``woken_by``: journal sequence of the message that its planner holds (0: found by a sweep)."""

    __pydantic_config__: ClassVar = _STRICT

    id: str
    started_at: str
    woken_by: Count
    inputs_through: Count


@dataclass(frozen=True, slots=True)
class Fence:
    """Commands of a run below ``run`` must not start."""

    __pydantic_config__: ClassVar = _STRICT

    run: Count


@dataclass(frozen=True, slots=True)
class PromptProof:
    """The last request: sequence and digest of the anchor record in it, digest and tokens of the request, the model."""

    __pydantic_config__: ClassVar = _STRICT

    anchor_revision: int
    anchor_sha256: str
    sha256: str
    tokens: int
    model: str


@dataclass(frozen=True, slots=True)
class Pace:
    """The account of an agent's rate limit (`core.session.pacing`): start of the last turn, and when its bucket is full."""

    __pydantic_config__: ClassVar = _STRICT

    started_at: str
    full_at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """The whole anchor. docs/wire-format.md describes each field. Change it with `dataclasses.replace`."""

    __pydantic_config__: ClassVar = _STRICT

    schema: Literal[1] = SCHEMA
    workspace: str
    session: str
    agent: str
    status: Status = "idle"
    run_id: Count = 0
    generation: Count = 0
    execution_id: str | None = None
    turn: TurnMark | None = None
    fence: Fence = Fence(0)
    run_count: Count = 0
    last_run_id: Count = 0
    last_run_timestamp: str | None = None
    last_run_outcome: RunOutcome | None = None
    last_run_reason: str = ""
    runs_without_progress: Count = 0
    runs_by_rules: Count = 0
    emergency: OpenEmergency | None = None
    inputs_through: Count = 0
    inputs_joined: tuple[int, ...] = ()
    inputs_refused: Count = 0
    next_check_at: str | None = None
    pace: Pace | None = None
    reset_count: Count = 0
    objectives: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    constraint_rules: dict[str, str] = field(default_factory=dict)
    objectives_missed: dict[str, Count] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    prompt: PromptProof | None = None

    def to_json(self) -> dict[str, Any]:
        """The anchor as the JSON object that is stored."""
        stored: dict[str, Any] = _ADAPTER.dump_python(self, mode="json")
        return stored


_ADAPTER: TypeAdapter[Anchor] = TypeAdapter(Anchor)


def read_anchor(value: dict[str, Any]) -> Anchor:
    """Check a stored anchor against the schema.

    Raises:
        Damaged: it violates the schema.
    """
    try:
        return _ADAPTER.validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Damaged(f"the anchor violates its schema at {where or 'the top'}: {first['msg']}") from None


def check_size(size_bytes: int) -> None:
    """Refuse an anchor above 16 KiB.

    Raises:
        TooLarge: the anchor exceeds the limit; it is never truncated.
    """
    if size_bytes > ANCHOR_BYTES_MAX:
        raise TooLarge(
            f"the anchor would be {size_bytes} bytes, the limit is {ANCHOR_BYTES_MAX}",
            hint="shorten objectives, constraints or the pack's facts",
        )
