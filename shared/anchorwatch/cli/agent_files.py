"""What is read from a person: an agent's file, its address, JSON."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError, model_validator

from anchorwatch.core.agents import AgentSpec, hint_of
from anchorwatch.core.errors import BadInput, NotFound
from anchorwatch.core.faults import place_of, problem_of
from anchorwatch.core.names import check_name
from anchorwatch.packs.port import Stimulus

EXERCISE = "exercise"


def read(file: Path) -> AgentSpec:
    """The agent that a TOML file defines.

    Its ``[[exercise]]`` tables are for a crash test (`read_exercise`), and no part of the definition.

    Raises:
        NotFound: there is no such file.
        BadInput: it is no TOML, or no agent; every fault is named.
    """
    value = _read(file)
    value.pop(EXERCISE, None)
    try:
        return AgentSpec.model_validate(value)
    except ValidationError as error:
        found = error.errors(include_url=False)
        faults = "; ".join(f"{place_of(fault, 'the file')} {problem_of(fault)}" for fault in found)
        hint = hint_of(found) or f"an agent has {', '.join(AgentSpec.model_fields)}"
        raise BadInput(f"{file}: {faults}", hint=hint) from None


def read_exercise(file: Path) -> tuple[Stimulus, ...]:
    """What an agent's file has a crash test tell the agent: its ``[[exercise]]`` tables, in order.

    Raises:
        NotFound: there is no such file.
        BadInput: it is no TOML, or a table says neither a message nor an event.
    """
    tables = _read(file).get(EXERCISE, [])
    try:
        return tuple(_Exercise.model_validate(table).stimulus() for table in tables)
    except (ValidationError, TypeError) as error:
        raise BadInput(
            f"{file}: an [[{EXERCISE}]] cannot be read: {error}",
            hint='it has `message = "…"`, or `event = "SOURCE.TYPE"` and perhaps `data`; and perhaps `priority`',
        ) from None


class _Exercise(BaseModel):
    """One table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    message: str = ""
    event: Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+)?$")] = ""
    data: dict[str, Any] = {}
    priority: Literal["P0", "P1", "P2"] = "P0"

    @model_validator(mode="after")
    def _says_one_thing(self) -> _Exercise:
        if bool(self.message.strip()) == bool(self.event):
            raise ValueError("say a message or an event, and not both")
        return self

    def stimulus(self) -> Stimulus:
        source, _, type_ = self.event.partition(".")
        return Stimulus(self.message, source, type_, self.priority, self.data)


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotFound(f"there is no file {file}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(
            f"{file} cannot be read: {error}", hint="an agent is a TOML file, see docs/cli.md"
        ) from None


def check_address(name: str) -> str:
    """``NAME`` or ``NAME@VERSION``, checked here: it becomes a part of an address.

    Raises:
        BadInput: it is neither.
    """
    plain, at, version = name.partition("@")
    check_name(plain, "agent name")
    if at and not version.isdecimal():
        raise BadInput(f"{version!r} is no version", hint="write NAME@NUMBER")
    return name


def parse_json(text: str) -> Any:  # noqa: ANN401 - JSON
    """Read JSON from the command line.

    Raises:
        BadInput: it is none.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadInput(
            f"--data is no JSON: {error}", hint='quote it for the shell: \'{"id": "w-3"}\''
        ) from None
