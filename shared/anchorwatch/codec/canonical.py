"""One JSON text for one value, and the digest that names it."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

# Made once: for a short value, to make one takes longer than to use it.
_CANONICAL: Final = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
)


def canonical_json(value: Any) -> bytes:  # noqa: ANN401 - any JSON value
    """UTF-8 JSON with sorted keys, no white space, and no NaN.

    Raises:
        ValueError: a number is not finite. TypeError: a value is not JSON.
    """
    return _CANONICAL.encode(value).encode()


def sha256_hex(data: bytes) -> str:
    """The SHA-256 of ``data`` in 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()
