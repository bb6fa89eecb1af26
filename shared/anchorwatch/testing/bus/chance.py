"""Chance by seed, for code that asks the machine for it.

Services take their ids as data where it matters. What is left (a nonce for a message id, a token) comes from `secrets`
and `uuid`; inside a simulation these, too, must say the same in every run of a seed.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
from collections.abc import Iterator

TOKEN_BYTES = 32


@contextlib.contextmanager
def seeded_chance(seed: int) -> Iterator[None]:
    """Within the block, `secrets`, ``uuid.uuid4``, ``os.urandom`` and the functions of `random` follow ``seed``."""
    source = random.Random(f"chance {seed}")  # noqa: S311 - to repeat is the point

    def token_bytes(nbytes: int | None = None) -> bytes:
        return source.randbytes(TOKEN_BYTES if nbytes is None else nbytes)

    before = random.getstate(), secrets.token_bytes, os.urandom
    random.seed(f"random {seed}")
    # `token_hex` and `token_urlsafe` call the first, `uuid.uuid4` the second, however they were imported.
    secrets.token_bytes, os.urandom = token_bytes, source.randbytes
    try:
        yield
    finally:
        secrets.token_bytes, os.urandom = before[1:]
        random.setstate(before[0])


__all__ = ["seeded_chance"]
