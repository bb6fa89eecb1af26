"""Further models beside the one of the settings, each with a name that agents use: a TOML file that `ANCHORWATCH_MODELS` names.

    [small]
    model_url = "http://127.0.0.1:8080/v1"
    model_name = "qwen3:8b"
    model_profile = "json-schema"
    context_tokens_max = 8000
    price_prompt = 0.1

A table says what is otherwise than in the settings, under the settings' own names. So a named model is the settings with
changes, and whatever can be said of the one model of the settings can be said of each.
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
"""What a table may hold; beside these `KEY_FILE`, which names a file that holds the key."""
_NOT_HERE = frozenset({"model_fallbacks"})


def names(settings: Settings) -> list[str]:
    """The names of the further models.

    Raises:
        BadSettings: the file cannot be used.
    """
    return sorted(_read(settings.models)) if settings.models else []


def effective(settings: Settings, name: str) -> Settings:
    """The settings as they are for the model of that name: unchanged, but for one of the file.

    Raises:
        BadSettings: there is none, or its table cannot be used.
    """
    if name in {OPENAI, RULES}:
        return settings
    tables = _read(settings.models) if settings.models else {}
    if name not in tables:
        there = ", ".join((DEFAULT, RULES, OPENAI, *sorted(tables)))
        raise BadSettings(f"there is no model {name[:80]!r}", hint=f"one of {there}")
    place = f"{settings.models}: [{name}]"
    changes = _changes(tables[name], place)
    kept = {
        field: getattr(settings, field)
        for field in Settings.model_fields
        if field in settings.model_fields_set
    }
    if changes.get("model_url", settings.model_url) != settings.model_url:
        # A key is for the endpoint that it was given for, and for no other: not the one in the environment either.
        kept["model_key"] = None
    try:
        return Settings(**{**kept, **changes})
    except ValidationError as error:
        faults = "; ".join(
            f"{place_of(fault, 'the table')} {problem_of(fault)}" for fault in error.errors(include_url=False)
        )
        raise BadSettings(f"{place}: {faults}") from None


def in_turn(settings: Settings, agent: AgentSpec) -> tuple[str, ...]:
    """The models that an agent asks, by name: the next one where those before it do not answer."""
    first = settings.model if agent.model == DEFAULT else agent.model
    others = agent.fallbacks or (settings.model_fallbacks if agent.model == DEFAULT else ())
    return tuple(dict.fromkeys((first, *others)))


def bound(settings: Settings, name: str) -> int | None:
    """The most tokens of a request that the model's own table allows; None: it says nothing.

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
            raise BadSettings(f"{path}: {name} is no table", hint="write [NAME], and below it model_url = …")
        if name in {RULES, OPENAI, DEFAULT} or not re.fullmatch(NAME_PATTERN, name):
            raise BadSettings(
                f"{path}: no model can be called {name[:80]!r}",
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
                f"{place}: {field[:80]} is nothing that a model has",
                hint=f"it has {', '.join((*allowed, KEY_FILE))}",
            )
    return changes
