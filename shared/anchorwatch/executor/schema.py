"""Checks a command's arguments against its tool's JSON Schema (draft 2020-12): the only import of jsonschema_rs.

A schema comes from a pack, and may be generated: checking never leaves the process and never takes exponential time (INV-1310).
References outside the schema are refused, and patterns are compiled to automata, which have no look-around and no
back-references.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import jsonschema_rs

PROBLEMS_MAX = 3
PROBLEM_CHARS_MAX = 200
_COMPILED_MAX = 1024


def schema_problems(args: Mapping[str, Any], schema: Mapping[str, object]) -> str:
    """What is wrong with the arguments, as text for the model; empty when they are valid.

    An invalid schema refuses all arguments: a command that cannot be checked does not run.
    """
    try:
        validator = _compiled(json.dumps(schema, sort_keys=True))
        errors = sorted(
            validator.iter_errors(dict(args)), key=lambda error: list(map(str, error.instance_path))
        )
    except jsonschema_rs.ValidationError as error:
        return f"the tool's schema is invalid: {_describe(error)}"[:PROBLEM_CHARS_MAX]
    except Exception as error:  # noqa: BLE001 - a schema that is not JSON, or is nested too deeply, raises many kinds
        return f"the tool's schema is invalid: {type(error).__name__}: {error}"[:PROBLEM_CHARS_MAX]
    return "; ".join(_describe(error)[:PROBLEM_CHARS_MAX] for error in errors[:PROBLEMS_MAX])


@lru_cache(maxsize=_COMPILED_MAX)
def _compiled(schema: str) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(
        json.loads(schema),
        offline=True,
        pattern_options=jsonschema_rs.RegexOptions(),
        # Draft 2020-12: `format` is an annotation.
        validate_formats=False,
    )


def _describe(error: jsonschema_rs.ValidationError) -> str:
    where = ".".join(str(part) for part in error.instance_path)
    return f"{where}: {error.message}" if where else error.message
