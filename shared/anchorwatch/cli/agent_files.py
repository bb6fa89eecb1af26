"""What is read from a person: an agent's file, its address, JSON."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.errors import BadInput, NotFound
from anchorwatch.core.faults import place_of, problem_of
from anchorwatch.core.names import check_name


def read(file: Path) -> AgentSpec:
    """The agent that a TOML file defines.

    Raises:
        NotFound: there is no such file.
        BadInput: it is no TOML, or no agent; every fault is named.
    """
    try:
        value = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotFound(f"there is no file {file}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput(
            f"{file} cannot be read: {error}", hint="an agent is a TOML file, see docs/cli.md"
        ) from None
    try:
        return AgentSpec.model_validate(value)
    except ValidationError as error:
        faults = "; ".join(
            f"{place_of(fault, 'the file')} {problem_of(fault)}" for fault in error.errors(include_url=False)
        )
        raise BadInput(
            f"{file}: {faults}", hint=f"an agent has {', '.join(AgentSpec.model_fields)}"
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
