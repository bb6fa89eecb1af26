"""Reads stored values whose bounds have become narrower since they were stored."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from anchorwatch.core.faults import Fault

M = TypeVar("M", bound=BaseModel)
_NO_NUMBER = ("finite_number", "float_type", "int_type")


def within(model: type[M], value: object) -> M:
    """``value`` as ``model``: numbers are clamped to their bounds; invalid numbers and unknown names are dropped.

    Only for stored values, which must stay usable; input from a person is refused instead.

    Raises:
        ValidationError: another error remains.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        clamped = deepcopy(value)
        for fault in error.errors(include_url=False):
            if not _clamp(clamped, fault):
                raise
    return model.model_validate(clamped)


def _clamp(value: Any, fault: Fault) -> bool:  # noqa: ANN401 - JSON
    """Fix one error in place; False: it is of another kind."""
    *path, name = fault["loc"] or (None,)
    for part in path:
        value = value[part]
    if not isinstance(value, dict) or name not in value:
        return False
    kind, given = fault["type"], value[name]
    if kind == "less_than_equal":
        value[name] = fault["ctx"]["le"]
        return True
    # JSON has no infinity: it was stored as null.
    no_number = kind in _NO_NUMBER and (given is None or isinstance(given, float))
    if no_number or (kind == "extra_forbidden" and path):
        del value[name]
        return True
    return False
