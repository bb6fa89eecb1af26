"""Reading what was accepted before its bounds were as narrow as they are now."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from anchorwatch.core.faults import Fault

M = TypeVar("M", bound=BaseModel)
_NO_NUMBER = ("finite_number", "float_type", "int_type")


def within(model: type[M], value: object) -> M:
    """``value`` as ``model``: a number above its bound is the bound, one that is none is left out, as an unknown name inside is.

    For what is stored already, and must go on; what a person gives is refused in place of that.

    Raises:
        ValidationError: it has another fault.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        mended = deepcopy(value)
        for fault in error.errors(include_url=False):
            if not _mend(mended, fault):
                raise
    return model.model_validate(mended)


def _mend(value: Any, fault: Fault) -> bool:  # noqa: ANN401 - JSON
    """Mend one fault in place; False: it is none of these."""
    *path, name = fault["loc"] or (None,)
    for part in path:
        value = value[part]
    if not isinstance(value, dict) or name not in value:
        return False
    kind, given = fault["type"], value[name]
    if kind == "less_than_equal":
        value[name] = fault["ctx"]["le"]
        return True
    # JSON has no infinity, so that one was stored as null.
    no_number = kind in _NO_NUMBER and (given is None or isinstance(given, float))
    if no_number or (kind == "extra_forbidden" and path):
        del value[name]
        return True
    return False
