"""``anchorwatch config``: every setting, its value, where that comes from, and what it does."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from anchorwatch.cli.render import table
from anchorwatch.mesh.files import DataDir
from anchorwatch.mesh.mesh_settings import resolve
from anchorwatch.service.variables import MASKED, describe_unknown, unknown_variables, variable_of
from anchorwatch.settings import PREFIX, SECRET_FILE_SUFFIX, Settings, load, secret_names, source_of

KEPT = "last start"
"""The source of a setting that the mesh of the data directory keeps, and that this shell does not set."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One setting. ``source``: the environment, a file, `KEPT`, or ``default``."""

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
    given = load()
    resolved = resolve(DataDir.at(given.data_dir), given)
    shown = [_shown(name, resolved.settings, resolved.not_here) for name in Settings.model_fields]
    unknown = unknown_variables()
    if as_json:
        settings = {each.name: _as_json(each) for each in shown}
        print(json.dumps({"settings": settings, "unknown_variables": list(unknown)}, indent=2))
        return
    print(table(["setting", "value", "from", "meaning"], [
        [each.variable, _text(each.value), each.source, each.description] for each in shown]))  # fmt: skip
    for variable, meant in unknown.items():
        print(describe_unknown(variable, meant))


def markdown_table() -> str:
    """The table of docs/settings.md."""
    rows = ["| setting | default | what it does |", "| --- | --- | --- |"]
    for name, field in Settings.model_fields.items():
        written = "" if field.default is None else _as_given(field.default)
        default = f"`{written}`" if written else ""
        files = f" (or `{PREFIX}{name.upper()}{SECRET_FILE_SUFFIX}`)" if name in secret_names() else ""
        rows.append(f"| `{PREFIX}{name.upper()}`{files} | {default} | {field.description} |")
    return "\n".join(rows) + "\n"


def _shown(name: str, settings: Settings, kept: tuple[str, ...]) -> Shown:
    field = Settings.model_fields[name]
    value = getattr(settings, name)
    variable = variable_of(name)
    return Shown(
        name=name,
        variable=variable,
        value=MASKED if isinstance(value, SecretStr) else value,
        source=KEPT if {variable, variable + SECRET_FILE_SUFFIX} & set(kept) else source_of(name),
        default=field.default,
        description=field.description or "",
    )


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
