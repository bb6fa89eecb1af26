"""Evaluates rules written in CEL: the adapter behind `anchorwatch.core.policy.Evaluate`, and the only import of the library."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import cel

from anchorwatch.core.errors import BadInput

PROGRAMS_MAX = 512
"""Compiled programs that are kept; rules come from packs, so there are few."""


def evaluate(expression: str, values: Mapping[str, Any]) -> object:
    """The value of ``expression`` over named values. A fact that is not known is CEL's ``null``.

    Raises:
        BadInput: it is no CEL. Whatever else the library raises (KeyError for a name that is not there, TypeError for types
        that do not compare): the rule cannot be evaluated, and whoever asked refuses.
    """
    result: object = _compiled(expression).execute(dict(values))
    return result


def check(expression: str) -> None:
    """See that ``expression`` is CEL, before anything depends on it.

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
        raise BadInput(f"a rule is no CEL: {first[:300]}", hint=f"the rule is {expression[:200]!r}") from None
