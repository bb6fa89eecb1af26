"""Input from people: the file of an agent, its address, JSON."""

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

    Its ``[[exercise]]`` tables are for a crash test (`read_exercise`), and not part of the definition.

    Raises:
        NotFound: the file does not exist.
        BadInput: it is not TOML, or does not define an agent; the error names every fault.
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
        NotFound: the file does not exist.
        BadInput: it is not TOML, or a table has neither a message nor an event.
    """
    tables = _read(file).get(EXERCISE, [])
    try:
        return tuple(_Exercise.model_validate(table).stimulus() for table in tables)
    except (ValidationError, TypeError) as error:
        raise BadInput(
            f"{file}: an [[{EXERCISE}]] table is not valid: {error}",
            hint='give `message = "…"`, or `event = "SOURCE.TYPE"` with optional `data`; `priority` is optional',
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
            raise ValueError("give either a message or an event")
        return self

    def stimulus(self) -> Stimulus:
        source, _, type_ = self.event.partition(".")
        return Stimulus(self.message, source, type_, self.priority, self.data)


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotFound(f"file {file} does not exist") from None
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
        raise BadInput(f"{version!r} is not a version", hint="write NAME@NUMBER")
    return name


def parse_json(text: str) -> Any:  # noqa: ANN401 - JSON
    """Read JSON from the command line.

    Raises:
        BadInput: it is not JSON.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadInput(
            f"--data is not valid JSON: {error}", hint='quote it for the shell: \'{"id": "w-3"}\''
        ) from None
