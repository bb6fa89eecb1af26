"""What clients send. Unknown fields are refused: a misspelt option that is ignored is a trap."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from anchorwatch.core.agents import Name
from anchorwatch.core.schedules.schedule import Missed, Overlap
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

PriorityName = Literal["P0", "P1", "P2"]
PRIORITIES: dict[str, Literal[0, 1, 2]] = {"P0": 0, "P1": 1, "P2": 2}
VerdictName = Literal["done", "not-done"]
VERDICTS: dict[VerdictName, Literal["done", "not_done"]] = {"done": "done", "not-done": "not_done"}
DIRECTIVES_MAX = 32
NOTE_CHARS_MAX = 1000
KEY_PATTERN = r"^[\x21-\x7e][\x20-\x7e]{0,254}$"
TOKEN_PATTERN = r"^[A-Za-z0-9_-]{1,64}$"
EVENT_TYPE_PATTERN = r"^[A-Za-z0-9_-]{1,64}(\.[A-Za-z0-9_-]{1,64}){0,7}$"
EVENT_ID_PATTERN = r"^[\x21-\x7e]{1,128}$"
LAST_ID_PATTERN = r"^[0-9]{1,16}$"
PLAN_PATTERN = r"^[0-9a-f]{64}$"
FORMS = {
    r"\S": "more than white space",
    KEY_PATTERN: "1-255 printable ASCII characters, the first no space",
    TOKEN_PATTERN: "1-64 letters, digits, '_' or '-'",
    EVENT_TYPE_PATTERN: "1-8 words of letters, digits, '_' and '-' with dots between, such as instance.dead",
    EVENT_ID_PATTERN: "1-128 printable ASCII characters without a space",
    LAST_ID_PATTERN: "a journal sequence",
    PLAN_PATTERN: "64 hexadecimal digits, as `plan` of the repair that was shown",
}
"""What each pattern stands for, in words."""

Directive = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000)]


def _as_written(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


TurnName = Annotated[str, BeforeValidator(_as_written)]
"""A turn's id, or its run number: as text, or as the number that it is."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class NewSession(_Body):
    """A session to make. Without objectives, those of the agent hold; constraints are added to the agent's."""

    name: Name
    agent: Name
    objectives: list[Directive] | None = Field(None, max_length=DIRECTIVES_MAX)
    constraints: list[Directive] | None = Field(None, max_length=DIRECTIVES_MAX)


class NewInput(_Body):
    """A message to a session."""

    content: Annotated[str, StringConstraints(min_length=1, pattern=r"\S")]
    priority: PriorityName = Field("P0", description="P0: look at once; P1: soon; P2: at the next check")


class Trigger(_Body):
    """A wish that the session looks now."""

    reason: str = Field("", max_length=1000)


class Replay(_Body):
    """Which turn to make again, and which other model to ask."""

    turn: Annotated[TurnName, StringConstraints(pattern=TOKEN_PATTERN)] = Field(
        description="the turn's id, or its run number"
    )
    model: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="a model's name at the configured endpoint, or `rules`",
    )


class Drop(_Body):
    """Why a dead letter is given up."""

    note: str = Field("", max_length=1000)


class Reason(_Body):
    """Why something is ordered; it stands in the record."""

    reason: str = Field("", max_length=500)


class Cancel(Reason):
    """Which turn is to end: its id, or its run number."""

    turn: Annotated[TurnName, StringConstraints(min_length=1, max_length=64)]


class SteerBody(_Body):
    """What is said to which turn: its id, or its run number."""

    turn: Annotated[TurnName, StringConstraints(min_length=1, max_length=64)]
    text: Annotated[str, StringConstraints(min_length=1, max_length=16_000, pattern=r"\S")]


class Directives(Reason):
    """A change of the objectives, or of the constraints. Those to remove are named word for word."""

    change: Literal["set", "add", "remove"]
    items: list[Directive] = Field(max_length=DIRECTIVES_MAX)


class Clear(Reason):
    """Which inputs are to be disposed of: those up to ``through``; none: all that wait now."""

    through: int | None = Field(None, ge=0, le=2**53)


class ResetBody(Reason):
    """``confirmation``: of what was shown; null: the reset is to be done whatever there is now."""

    confirmation: str | None = Field(max_length=80)


class Kill(Reason):
    """Which kill switch is turned: of a session or an agent (``name``), or of the workspace."""

    scope: Literal["session", "agent", "workspace"]
    name: Name | None = None
    on: bool


class NewSchedule(_Body):
    """A schedule to make: when (cron and zone), which session, and what it is told."""

    name: Name
    session: Name
    cron: str = Field(max_length=200, description="five fields: minute hour day-of-month month day-of-week")
    zone: str = Field("UTC", max_length=64, description="a time zone, such as Europe/Berlin")
    text: str = Field("", max_length=8_000, description="what the session is told at each occurrence")
    missed: Missed = Field("one", description="what was missed is made up for by one occurrence, or by none")
    overlap: Overlap = Field(
        "skip", description="an occurrence during a turn is skipped, or one waits for its end"
    )


class Repair(_Body):
    """Which plan of a repair is confirmed."""

    plan: str = Field(pattern=PLAN_PATTERN, description="`plan` of the repair that was shown")
    note: str = Field("", max_length=500)


class Accept(_Body):
    """Which loss of the journal's end is accepted."""

    plan: str = Field(pattern=PLAN_PATTERN, description="`plan` of the loss that was shown")
    note: str = Field("", max_length=500)


class NewEvent(_Body):
    """Something that happened outside."""

    source: str = Field(pattern=TOKEN_PATTERN)
    type: str = Field(
        pattern=EVENT_TYPE_PATTERN, description="words with dots between, such as instance.dead"
    )
    data: Any = None
    priority: PriorityName = "P1"
    id: str | None = Field(
        None, pattern=EVENT_ID_PATTERN, description="the event's own id: sent again, it is the same event"
    )


class ResolveEffect(_Body):
    """What a person found out about an effect that is `unknown`."""

    call: str = Field(max_length=128, description="SESSION/RUN.STEP.N, as `effects` prints it")
    verdict: VerdictName = Field(description="whether it was done")
    note: str = Field("", max_length=NOTE_CHARS_MAX, description="how that is known")
