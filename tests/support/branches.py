"""Proves that the examples of a property reached its interesting branches, so that it does not pass vacuously."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec

from hypothesis import settings

# With fewer examples, as in `make quick`, only luck reaches a rare branch.
EXAMPLES_MIN = 100
P = ParamSpec("P")
_taken: set[str] = set()


def reach(branch: str) -> None:
    """Note that this example took the branch."""
    _taken.add(branch)


def reaches(*branches: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Fail the property if no example took one of the branches. Goes above ``@given``.

    Where a profile draws fewer than ``EXAMPLES_MIN`` examples, the branches are not required.
    """

    def decorate(test: Callable[P, None]) -> Callable[P, None]:
        @functools.wraps(test)
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            _taken.clear()
            test(*args, **kwargs)
            if settings().max_examples < EXAMPLES_MIN:
                return
            missed = set(branches) - _taken
            assert not missed, f"no example reached: {', '.join(sorted(missed))}"

        return run

    return decorate
