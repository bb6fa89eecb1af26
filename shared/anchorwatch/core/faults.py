"""Explains validation errors to the person who wrote the value: what is allowed, not how it was checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anchorwatch.core.names import NAME_FORM, NAME_PATTERN

Fault = Mapping[str, Any]
"""One of pydantic's errors: ``type``, ``loc``, ``msg``, ``ctx``."""

_TEXT = "must be text"
_WHOLE = "must be a whole number"
_NUMBER = "must be a number"
_LIST = "must be a list"


def _shown(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else str(bound)


_BY_TYPE: dict[str, str | Callable[[Mapping[str, Any]], str]] = {
    "missing": "is missing",
    "extra_forbidden": "is not a known field",
    "string_type": _TEXT,
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": _NUMBER,
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "list_type": _LIST,
    "tuple_type": _LIST,
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "literal_error": lambda ctx: f"must be {str(ctx['expected']).replace(chr(39), '')}",
    "greater_than": lambda ctx: f"must be above {_shown(ctx['gt'])}",
    "greater_than_equal": lambda ctx: f"must be at least {_shown(ctx['ge'])}",
    "less_than": lambda ctx: f"must be below {_shown(ctx['lt'])}",
    "less_than_equal": lambda ctx: f"must be at most {_shown(ctx['le'])}",
    "string_too_short": lambda ctx: (
        "must not be empty" if ctx["min_length"] == 1 else f"must have {ctx['min_length']} characters or more"
    ),
    "string_too_long": lambda ctx: f"must have at most {ctx['max_length']} characters",
    "too_short": lambda ctx: f"must have {ctx['min_length']} entries or more",
    "too_long": lambda ctx: f"must have at most {ctx['max_length']} entries",
    "value_error": lambda ctx: f"is invalid: {ctx['error']}",
}


def problem_of(fault: Fault, forms: Mapping[str, str] | None = None) -> str:
    """The problem, as the predicate of the field's name. ``forms``: a description of each pattern."""
    context = fault.get("ctx", {})
    if fault["type"] == "string_pattern_mismatch":
        known = {f"^{NAME_PATTERN}$": NAME_FORM, **(forms or {})}
        form = known.get(context["pattern"])
        return f"must be {form}" if form else "has an invalid form"
    words = _BY_TYPE.get(fault["type"])
    if words is None:
        return f"is invalid: {fault['msg']}"
    return words if isinstance(words, str) else words(context)


def place_of(fault: Fault, whole: str) -> str:
    """The name of the field; ``whole`` if the error concerns the whole value."""
    return ".".join(str(part) for part in fault["loc"]) or whole
