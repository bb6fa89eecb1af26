"""Parses the arguments of a tool call: a strict JSON object, or an error.

Arguments are never repaired: half a command is not a command.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

from anchorwatch.models.text import clean

ARGUMENTS_BYTES_MAX = 128 * 1024
DEPTH_MAX = 32
_INTEGER_MIN, _INTEGER_MAX = -(2**63), 2**63 - 1
_INTEGER_DIGITS_MAX = 20


class BadArguments(ValueError):
    """The arguments cannot be used; the text says why, in words for the model."""


def read_arguments(raw: object) -> dict[str, Any]:
    """The arguments, with clean strings and numbers that every store can hold.

    Raises:
        BadArguments: they are not a JSON object, or two parsers could read it differently.
    """
    if isinstance(raw, Mapping):
        # Some servers send the object itself. It is parsed as text, so that the same rules apply.
        try:
            raw = json.dumps(raw)
        except (TypeError, ValueError, RecursionError):
            raise BadArguments("the arguments are not JSON") from None
    if not isinstance(raw, str):
        raise BadArguments("there are no arguments; send {} when a tool takes none")
    if len(raw) > ARGUMENTS_BYTES_MAX or len(raw.encode("utf-8", "replace")) > ARGUMENTS_BYTES_MAX:
        raise BadArguments(f"the arguments are larger than {ARGUMENTS_BYTES_MAX // 1024} KiB")
    if not raw.strip():
        raise BadArguments("the arguments are empty; send {} when a tool takes none")
    try:
        value = json.loads(
            raw,
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_number,
            parse_constant=_constant,
        )
    except json.JSONDecodeError as error:
        raise BadArguments(f"the arguments are not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise BadArguments("the arguments are nested too deeply") from None
    if not isinstance(value, dict):
        raise BadArguments(f"the arguments are not a JSON object but {type(value).__name__}")
    return {key: _checked(item, 1) for key, item in value.items()}


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        name = clean(key)
        if name in result:
            # JSON readers disagree on which one counts; an executor must not have to guess.
            raise BadArguments(f"the arguments name {name[:64]!r} twice")
        result[name] = value
    return result


def _integer(digits: str) -> int:
    # Checked before the conversion: converting thousands of digits is slow, and Python refuses it.
    if len(digits) > _INTEGER_DIGITS_MAX or not _INTEGER_MIN <= int(digits) <= _INTEGER_MAX:
        raise BadArguments("the arguments hold a whole number beyond 64 bits")
    return int(digits)


def _number(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise BadArguments("the arguments hold a number that is too large")
    return value


def _constant(name: str) -> NoReturn:
    raise BadArguments(f"the arguments hold {name}, which is not JSON")


def _checked(value: Any, depth: int) -> Any:  # noqa: ANN401 - JSON is of any type
    if depth > DEPTH_MAX:
        raise BadArguments("the arguments are nested too deeply")
    match value:
        case str():
            return clean(value)
        case dict():
            return {key: _checked(item, depth + 1) for key, item in value.items()}
        case list():
            return [_checked(item, depth + 1) for item in value]
        case _:
            return value
