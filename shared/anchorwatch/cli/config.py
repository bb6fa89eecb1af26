"""``anchorwatch config``: every setting, its value, where that comes from, and what it does."""

from __future__ import annotations

import json
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from anchorwatch.cli.render import table
from anchorwatch.service.readiness import READY_FD
from anchorwatch.settings import FILE, PREFIX, SECRET_FILE_SUFFIX, Settings, load, secret_names

MASKED = "********"
# Ours, but not settings: between the supervisor and its children, and for tests.
OTHER_VARIABLES = (READY_FD, f"{PREFIX}FAILPOINTS", f"{PREFIX}TRACEBACK", f"{PREFIX}TEST_")


@dataclass(frozen=True, slots=True)
class Shown:
    """One setting. ``source``: the environment variable, the file, or ``default``."""

    name: str
    variable: str
    value: Any
    source: str
    default: Any
    description: str


def run(*, as_json: bool, markdown: bool) -> None:
    """Print them.

    Raises:
        BadSettings: one cannot be used.
    """
    if markdown:
        print(markdown_table(), end="")
        return
    shown = survey(load())
    unknown = unknown_variables()
    if as_json:
        settings = {each.name: _as_json(each) for each in shown}
        print(json.dumps({"settings": settings, "unknown_variables": unknown}, indent=2))
        return
    print(table(["setting", "value", "from", "meaning"], [
        [each.variable, _text(each.value), each.source, each.description] for each in shown]))  # fmt: skip
    for variable in unknown:
        print(f"{variable} is set, but is not a setting")


def survey(settings: Settings) -> list[Shown]:
    """Every setting with its present value."""
    return [_shown(name, settings) for name in Settings.model_fields]


def markdown_table() -> str:
    """The table of docs/settings.md."""
    rows = ["| setting | default | what it does |", "| --- | --- | --- |"]
    for name, field in Settings.model_fields.items():
        written = "" if field.default is None else _as_given(field.default)
        default = f"`{written}`" if written else ""
        files = f" (or `{PREFIX}{name.upper()}{SECRET_FILE_SUFFIX}`)" if name in secret_names() else ""
        rows.append(f"| `{PREFIX}{name.upper()}`{files} | {default} | {field.description} |")
    return "\n".join(rows) + "\n"


def unknown_variables() -> list[str]:
    """Variables with our prefix that are not settings: most likely misspelt."""
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    known |= {f"{PREFIX}{name.upper()}{SECRET_FILE_SUFFIX}" for name in secret_names()}
    return sorted(
        name
        for name in os.environ
        if name.upper().startswith(PREFIX)
        and name.upper() not in known
        and not name.upper().startswith(OTHER_VARIABLES)
    )


def _shown(name: str, settings: Settings) -> Shown:
    field = Settings.model_fields[name]
    value = getattr(settings, name)
    return Shown(
        name=name,
        variable=f"{PREFIX}{name.upper()}",
        value=MASKED if isinstance(value, SecretStr) else value,
        source=_source(name),
        default=field.default,
        description=field.description or "",
    )


def _source(name: str) -> str:
    variable = f"{PREFIX}{name.upper()}"
    environment = {each.upper() for each, value in os.environ.items() if value}
    if variable in environment:
        return "environment"
    if name in secret_names() and variable + SECRET_FILE_SUFFIX in environment:
        return f"file {os.environ[variable + SECRET_FILE_SUFFIX]}"
    file = Path(FILE)
    if file.exists() and name in tomllib.loads(file.read_text(encoding="utf-8")):
        return FILE
    return "default"


def _text(value: Any) -> str:  # noqa: ANN401 - a setting's
    return "-" if value is None else _as_given(value) or "-"


def _as_given(value: Any) -> str:  # noqa: ANN401 - a setting's
    """A value as a person writes it: a list has commas."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _as_json(shown: Shown) -> dict[str, Any]:
    return {
        "value": str(shown.value) if isinstance(shown.value, Path) else shown.value,
        "source": shown.source,
        "default": str(shown.default) if isinstance(shown.default, Path) else shown.default,
        "variable": shown.variable,
        "description": shown.description,
    }
