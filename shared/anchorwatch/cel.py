"""Evaluates CEL rules: the adapter for `anchorwatch.core.policy.Evaluate`, and the only import of the library."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import cel

from anchorwatch.core.errors import BadInput

PROGRAMS_MAX = 512
"""Cached compiled programs; rules come from packs, so there are few."""


def evaluate(expression: str, values: Mapping[str, Any]) -> object:
    """The value of ``expression`` over named values. An unknown fact is CEL's ``null``.

    Raises:
        BadInput: it is not valid CEL. Any other exception of the library (KeyError for an unknown name, TypeError for
        incomparable types) means that the rule cannot be evaluated, and the caller refuses.
    """
    result: object = _compiled(expression).execute(dict(values))
    return result


def check(expression: str) -> None:
    """Check that ``expression`` is valid CEL.

    Raises:
        BadInput: it is not; the message says where.
    """
    _compiled(expression)


@lru_cache(PROGRAMS_MAX)
def _compiled(expression: str) -> cel.Program:
    try:
        return cel.compile(expression)
    except ValueError as error:
        first = str(error).splitlines()[0]
        raise BadInput(
            f"a rule is not valid CEL: {first[:300]}", hint=f"the rule is {expression[:200]!r}"
        ) from None
