"""The settings that a data directory keeps for its mesh: a start from another shell or directory changes none of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from anchorwatch.core.errors import Refused
from anchorwatch.mesh.files import DataDir, read_json, write_private_json
from anchorwatch.models.profile import SHIPPED
from anchorwatch.service.variables import MASKED, as_text, pack_variables, variable_of
from anchorwatch.settings import (
    FILE,
    SECRET_FILE_SUFFIX,
    Settings,
    load,
    read_secret,
    secret_names,
    source_of,
)

ENVIRONMENT = "environment"
OF_THE_SHELL = frozenset({
    "data_dir", "url", "token", "nats_url", "nats_user", "nats_password", "instance", "workspace", "nats_port", "port",
})  # fmt: skip
"""Not kept here: settings of a client or of one process, and those that other files of the directory hold."""
KEPT = tuple(name for name in Settings.model_fields if name not in OF_THE_SHELL)


@dataclass(frozen=True, slots=True)
class Value:
    """The value of a variable. ``origin``: `ENVIRONMENT`, or the path of the settings file."""

    value: str = field(repr=False)
    origin: str = ENVIRONMENT


@dataclass(frozen=True, slots=True)
class MeshSettings:
    """Settings and the settings of packs, by variable. They hold secrets."""

    variables: Mapping[str, Value] = field(default_factory=dict)

    @classmethod
    def load(cls, data: DataDir) -> MeshSettings | None:
        """The settings of the last start; None if there was none.

        Raises:
            Refused: the file is damaged.
        """
        stored = read_json(data.settings)
        if stored is None:
            return None
        try:
            return cls(
                {name: Value(str(each["value"]), str(each["origin"])) for name, each in stored.items()}
            )
        except (KeyError, TypeError):
            raise Refused(
                f"{data.settings} is damaged",
                hint="run `anchorwatch up --new-settings` with the settings of the mesh in the environment",
            ) from None

    def save(self, data: DataDir) -> None:
        """Replace the stored settings, readable by their owner only."""
        write_private_json(data.settings, {name: asdict(each) for name, each in self.variables.items()})

    @property
    def environment(self) -> dict[str, str]:
        """The variables for a service."""
        return {name: each.value for name, each in self.variables.items()}


@dataclass(frozen=True, slots=True)
class Resolved:
    """The settings of a start.

    ``settings``: what is in force. ``kept``: what is in force, as variables. ``not_here``: the variables in force that this
    shell does not set. ``changes``: a text for each value that differs from the last start.
    """

    settings: Settings
    kept: MeshSettings
    not_here: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()


def resolve(data: DataDir, given: Settings, *, forget: bool = False) -> Resolved:
    """The settings of a start on ``data``: those that this shell gives, else those of the last start.

    ``forget``: only those of this shell.

    Raises:
        BadSettings: a kept setting is invalid, or the file of a secret cannot be read.
        Refused: the stored settings are damaged.
    """
    here = _given(given)
    try:
        last = MeshSettings.load(data)
    except Refused:
        if not forget:
            raise
        last = None
    now = here if forget or last is None else _merged(last, here)
    not_here = tuple(sorted(now.variables.keys() - here.variables.keys()))
    return Resolved(
        load(data_dir=given.data_dir, **_values(now, not_here)),
        now,
        not_here,
        () if last is None else tuple(_changes(last, now)),
    )


def shown(variable: str, value: str) -> str:
    """A value for people. Settings of packs may be secrets, so they are masked too."""
    setting = _setting_of(variable)
    is_public = setting in KEPT and setting not in secret_names()
    return value if is_public or variable.endswith(SECRET_FILE_SUFFIX) else MASKED


def _given(settings: Settings) -> MeshSettings:
    """The settings that the environment or the settings file of this shell sets."""
    found = {name: Value(value) for name, value in pack_variables().items()}
    for name in KEPT:
        if name not in settings.model_fields_set:
            continue
        source = source_of(name)
        if source.startswith("file "):
            path = Path(source.removeprefix("file "))
            found[variable_of(name) + SECRET_FILE_SUFFIX] = Value(as_text(path))
        else:
            origin = as_text(Path(FILE)) if source == FILE else ENVIRONMENT
            found[variable_of(name)] = Value(_portable(name, getattr(settings, name)), origin)
    return MeshSettings(found)


def _portable(name: str, value: object) -> str:
    """The text of a value, valid in any working directory."""
    if name == "model_profile" and str(value).strip() not in SHIPPED:
        return as_text(Path(str(value).strip()))
    return as_text(value)


def _merged(last: MeshSettings, here: MeshSettings) -> MeshSettings:
    """The settings of the last start, changed by those of this shell. A line removed from this settings file is removed."""
    file = as_text(Path(FILE))
    left = {
        name: each
        for name, each in last.variables.items()
        if each.origin != file and _counterpart(name) not in here.variables
    }
    return MeshSettings(left | dict(here.variables))


def _counterpart(variable: str) -> str:
    """The other variable of the same secret."""
    bare = variable.removesuffix(SECRET_FILE_SUFFIX)
    return bare if bare != variable else variable + SECRET_FILE_SUFFIX


def _values(now: MeshSettings, names: tuple[str, ...]) -> dict[str, Any]:
    """The values of these variables, by the names of their settings."""
    values: dict[str, Any] = {}
    for name in names:
        setting = _setting_of(name)
        if setting in KEPT:
            value = now.variables[name].value
            values[setting] = read_secret(name, value) if name.endswith(SECRET_FILE_SUFFIX) else value
    return values


def _setting_of(variable: str) -> str:
    names = {variable_of(name): name for name in KEPT}
    names |= {variable_of(name) + SECRET_FILE_SUFFIX: name for name in secret_names()}
    return names.get(variable, "")


def _changes(before: MeshSettings, now: MeshSettings) -> list[str]:
    found = []
    for name in sorted(before.variables.keys() | now.variables.keys()):
        old, new = (each.variables[name].value if name in each.variables else None for each in (before, now))
        if old != new:
            found.append(f"{name}: {_or_default(name, old)} -> {_or_default(name, new)}")
    return found


def _or_default(variable: str, value: str | None) -> str:
    if value is not None:
        return shown(variable, value)
    setting = Settings.model_fields.get(_setting_of(variable))
    default = None if setting is None or variable.endswith(SECRET_FILE_SUFFIX) else setting.default
    return "not set" if default in (None, "", ()) else f"{as_text(default)} (default)"
