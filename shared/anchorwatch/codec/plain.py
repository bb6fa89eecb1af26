"""Any value as plain data: what every reader, JSON and msgpack alike, can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

DEPTH_MAX = 32
_INTEGER_MIN, _INTEGER_MAX = -(2**63), 2**63 - 1


def plain(value: Any, depth: int = 0) -> Any:  # noqa: ANN401 - whatever came from outside
    """``value`` as nested maps, lists, text, numbers, booleans and None; what has no such form becomes text."""
    match value:
        case None | bool():
            return value
        case str():
            return value.encode("utf-8", "replace").decode()
        case int():
            return value if _INTEGER_MIN <= value <= _INTEGER_MAX else str(value)
        case float():
            return value if math.isfinite(value) else str(value)
        case _ if depth >= DEPTH_MAX:
            return plain(str(value))
        case Mapping():
            return {str(plain(str(key))): plain(item, depth + 1) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(item, depth + 1) for item in value]
        case _:
            return plain(str(value))
