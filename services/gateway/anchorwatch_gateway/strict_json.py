"""JSON as this API takes it: finite numbers of 64 bits, no NUL, no half characters, bounded depth. Pure."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from anchorwatch.core.errors import BadInput

from anchorwatch_gateway.errors import BadRequest

DEPTH_MAX = 32
INTEGER_MAX = 2**63 - 1
HINT = "send a JSON object as UTF-8"


def parse(data: bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Read a request body.

    Raises:
        BadRequest: it is no JSON. BadInput: it is, and holds what cannot be kept.
    """
    try:
        value = json.loads(
            data.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_without_repeats
        )
    except UnicodeDecodeError:
        raise BadRequest("the body is not UTF-8", hint=HINT) from None
    except RecursionError:
        raise BadInput(f"the body is nested deeper than {DEPTH_MAX} levels") from None
    except ValueError as error:
        # A BadInput of the hooks is none of these; what is left is a syntax error, or a number of thousands of digits.
        raise BadRequest(f"the body is no JSON: {str(error)[:120]}", hint=HINT) from None
    _check(value, DEPTH_MAX)
    return value


def _no_constant(name: str) -> NoReturn:
    raise BadRequest(f"{name} is no JSON", hint="numbers are finite")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise BadInput("a key stands twice in one object", hint="readers would disagree on which one counts")
    return value


def _check(value: object, levels_left: int) -> None:
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, int | float):
        _check_number(value)
    elif isinstance(value, list | dict):
        if levels_left == 0:
            raise BadInput(f"the body is nested deeper than {DEPTH_MAX} levels")
        for each in value.values() if isinstance(value, dict) else value:
            _check(each, levels_left - 1)
        for key in value if isinstance(value, dict) else ():
            _check_text(key)


def _check_number(number: float) -> None:
    if (type(number) is int and abs(number) > INTEGER_MAX) or not math.isfinite(number):
        raise BadInput("a number does not fit into 64 bits", hint="send it as text")


def _check_text(text: str) -> None:
    if "\0" in text:
        raise BadInput("a text holds a NUL character", hint="remove it")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInput("a text holds half of a surrogate pair", hint="send whole characters") from None
