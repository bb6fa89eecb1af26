"""Words for what checks expect and see. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

SHOWN_MAX = 6


def facts(values: Mapping[str, Any]) -> str:
    """Named values, with what is unknown said as such."""
    return ", ".join(f"{name}={_word(value)}" for name, value in values.items())


def _word(value: object) -> str:
    if value is None:
        return "unknown"
    return str(value).lower() if isinstance(value, bool) else str(value)


def counted(kinds: Counter[str]) -> str:
    """How many of each."""
    return ", ".join(f"{count} × {name}" for name, count in kinds.items()) or "nothing"


def pairs(counts: Mapping[str, int]) -> str:
    """Names and numbers, by name."""
    return ", ".join(f"{key}: {count}" for key, count in sorted(counts.items())) or "none"


def some(values: Iterable[object]) -> str:
    """The first of them, and how many more; ``none`` when there are none."""
    words = [str(value) for value in values]
    more = [f"and {len(words) - SHOWN_MAX} more"] if len(words) > SHOWN_MAX else []
    return ", ".join((*words[:SHOWN_MAX], *more)) or "none"
