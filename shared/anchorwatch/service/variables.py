"""Variables of the environment: their names, the text form of a setting, and the variables that no part reads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

from pydantic import SecretStr

from anchorwatch.packs import recording, registry
from anchorwatch.service import failpoints
from anchorwatch.service.readiness import READY_FD
from anchorwatch.service.runtimes import pack_prefix
from anchorwatch.settings import PREFIX, SECRET_FILE_SUFFIX, Settings, secret_names

MASKED = "********"
# Not settings: between the supervisor and its children, for tests, and for compose files.
_OTHERS = (
    READY_FD,
    failpoints.VARIABLE,
    recording.VARIABLE,
    recording.KILL_VARIABLE,
    *(f"{PREFIX}{name}" for name in ("TRACEBACK", "TEST_", "SIM_", "CHAOS_", "TAG")),
)


def variable_of(setting: str) -> str:
    """The variable of a setting.

    >>> variable_of("model_url")
    'ANCHORWATCH_MODEL_URL'
    """
    return f"{PREFIX}{setting.upper()}"


def known_variables() -> set[str]:
    """The variables of all settings, with those that name the file of a secret."""
    files = {variable_of(name) + SECRET_FILE_SUFFIX for name in secret_names()}
    return {variable_of(name) for name in Settings.model_fields} | files


def pack_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The settings of installed packs in the environment."""
    prefixes = tuple(map(pack_prefix, registry.names()))
    return {
        name: value
        for name, value in environment.items()
        if value and name.startswith(prefixes) and name not in known_variables()
    }


def unknown_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Variables with our prefix that nothing reads, each with the variable that may be meant (empty: none is similar)."""
    known = known_variables()
    ignored = (*_OTHERS, *map(pack_prefix, registry.names()))
    found = {}
    for name in sorted(environment):
        upper = name.upper()
        if upper.startswith(PREFIX) and upper not in known and not upper.startswith(ignored):
            found[name] = next(iter(get_close_matches(upper, known, n=1)), "")
    return found


def describe_unknown(name: str, meant: str) -> str:
    """The text about an unknown variable.

    >>> describe_unknown("ANCHORWATCH_HARTBEAT_S", "ANCHORWATCH_HEARTBEAT_S")
    'ANCHORWATCH_HARTBEAT_S is set, but is not a setting; did you mean ANCHORWATCH_HEARTBEAT_S?'
    """
    return f"{name} is set, but is not a setting" + (f"; did you mean {meant}?" if meant else "")


def as_text(value: object) -> str:
    """A value as a variable holds it: a list has commas and is ``none`` if it is empty, a secret is not masked."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "none"
    return str(value.absolute() if isinstance(value, Path) else value)
