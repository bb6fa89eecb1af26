"""Checks a command's arguments against its tool's JSON schema: the only import of jsonschema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jsonschema

PROBLEMS_MAX = 3
PROBLEM_CHARS_MAX = 200


def problem(args: Mapping[str, Any], schema: Mapping[str, object]) -> str:
    """What is wrong with the arguments, in words for the model; empty when nothing is.

    A schema that is none refuses everything: what cannot be checked does not run.
    """
    try:
        validator = jsonschema.Draft202012Validator(dict(schema))
        errors = sorted(
            validator.iter_errors(dict(args)), key=lambda error: list(map(str, error.absolute_path))
        )
    except Exception as error:  # noqa: BLE001 - the library raises many kinds for a schema that is odd
        return f"the tool's schema cannot be used: {type(error).__name__}: {error}"[:PROBLEM_CHARS_MAX]
    return "; ".join(_say(error) for error in errors[:PROBLEMS_MAX])


def _say(error: jsonschema.ValidationError) -> str:
    where = ".".join(str(part) for part in error.absolute_path)
    return f"{where}: {error.message}"[:PROBLEM_CHARS_MAX] if where else error.message[:PROBLEM_CHARS_MAX]
