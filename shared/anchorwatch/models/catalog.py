"""The further models of the TOML file that `ANCHORWATCH_MODELS` names, each under the name that agents use.

    [small]
    model_url = "http://127.0.0.1:8080/v1"
    model_name = "qwen3:8b"
    model_profile = "json-schema"
    context_tokens_max = 8000
    price_prompt = 0.1

A table overrides settings by their own names, so a named model is the settings with changes.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from anchorwatch.core.agents import DEFAULT, OPENAI, RULES, AgentSpec
from anchorwatch.core.errors import BadSettings
from anchorwatch.core.faults import place_of, problem_of
from anchorwatch.core.names import NAME_FORM, NAME_PATTERN
from anchorwatch.settings import Settings

KEY_FILE = "model_key_file"
_MORE = ("context_tokens_max", "completion_tokens_max", "price_prompt", "price_completion")
FIELDS = (*(name for name in Settings.model_fields if name.startswith("model_")), *_MORE)
"""The fields of a table; `KEY_FILE` may also name a file that holds the key."""
_NOT_HERE = frozenset({"model_fallbacks"})


def names(settings: Settings) -> list[str]:
    """The names of the further models.

    Raises:
        BadSettings: the file is invalid.
    """
    return sorted(_read(settings.models)) if settings.models else []


def effective(settings: Settings, name: str) -> Settings:
    """The settings for the named model: a model of the file changes some of them.

    Raises:
        BadSettings: the model is unknown, or its table is invalid.
    """
    if name in {OPENAI, RULES}:
        return settings
    tables = _read(settings.models) if settings.models else {}
    if name not in tables:
        there = ", ".join((DEFAULT, RULES, OPENAI, *sorted(tables)))
        raise BadSettings(f"unknown model {name[:80]!r}", hint=f"known models: {there}")
    place = f"{settings.models}: [{name}]"
    changes = _changes(tables[name], place)
    kept = {
        field: getattr(settings, field)
        for field in Settings.model_fields
        if field in settings.model_fields_set
    }
    if changes.get("model_url", settings.model_url) != settings.model_url:
        # A key is sent only to the endpoint it was configured for (INV-612), also a key of the environment.
        kept["model_key"] = None
    try:
        return Settings(**{**kept, **changes})
    except ValidationError as error:
        faults = "; ".join(
            f"{place_of(fault, 'the table')} {problem_of(fault)}" for fault in error.errors(include_url=False)
        )
        raise BadSettings(f"{place}: {faults}") from None


def in_turn(settings: Settings, agent: AgentSpec) -> tuple[str, ...]:
    """The names of an agent's models in order: each is the fallback of those before it."""
    first = settings.model if agent.model == DEFAULT else agent.model
    others = settings.model_fallbacks if agent.model == DEFAULT else (RULES,)
    if agent.fallbacks is not None:
        others = agent.fallbacks
    return tuple(dict.fromkeys((first, *others)))


def bound(settings: Settings, name: str) -> int | None:
    """The most tokens of a request that the model's own table allows; None: no bound.

    Raises:
        BadSettings: as `effective`.
    """
    if name in {RULES, OPENAI} or settings.models is None:
        return None
    table = _read(settings.models).get(name, {})
    return effective(settings, name).context_tokens_max if "context_tokens_max" in table else None


def _read(path: Path) -> dict[str, Mapping[str, Any]]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadSettings(
            f"the models' file {path} cannot be read: {error}", hint="see docs/models.md"
        ) from None
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise BadSettings(
                f"{path}: {name} is not a table", hint="write [NAME], followed by model_url = …"
            )
        if name in {RULES, OPENAI, DEFAULT} or not re.fullmatch(NAME_PATTERN, name):
            raise BadSettings(
                f"{path}: {name[:80]!r} is not a valid model name",
                hint=f"a name is {NAME_FORM}, and not {RULES}, {OPENAI} or {DEFAULT}",
            )
    return tables


def _changes(table: Mapping[str, Any], place: str) -> dict[str, Any]:
    changes = dict(table)
    if KEY_FILE in changes:
        path = Path(str(changes.pop(KEY_FILE)))
        try:
            changes["model_key"] = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            raise BadSettings(f"{place}: {KEY_FILE} {path} cannot be read") from None
    allowed = [field for field in FIELDS if field not in _NOT_HERE]
    for field in changes:
        if field not in allowed:
            raise BadSettings(
                f"{place}: unknown field {field[:80]!r}",
                hint=f"known fields: {', '.join((*allowed, KEY_FILE))}",
            )
    return changes
