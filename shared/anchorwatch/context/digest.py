"""The digest of a request, which proves that a request rendered again equals the one that was sent. Pure.

It covers the messages and tools, as canonical JSON.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from anchorwatch.codec import canonical_json
from anchorwatch.core.memo import ByIdentity, OfEach
from anchorwatch.models.port import TOOLS_REMEMBERED, WHOLE_PASTS_REMEMBERED, ModelRequest

List = Sequence[Mapping[str, Any]]


def request_bytes(request: ModelRequest) -> bytes:
    """The bytes that the digest covers."""
    return b"".join((*_beginning(request), *_end(request)))


def request_digest(request: ModelRequest) -> str:
    """The SHA-256 of `request_bytes`, in 64 hexadecimal digits.

    The steps of a turn share most of their request; the shared part is digested once.
    """
    known = _begun(request.past)
    opening = _inside(request.opening)
    if opening not in known:
        known.clear()
        known[opening] = hashlib.sha256(b"".join(_beginning(request)))
    digest = known[opening].copy()
    digest.update(b"".join(_end(request)))
    return digest.hexdigest()


def _beginning(request: ModelRequest) -> Sequence[bytes]:
    parts = filter(None, (_inside(request.opening), *_past_bytes(request.past)))
    return b'{"messages":[', b",".join(parts)


def _end(request: ModelRequest) -> Sequence[bytes]:
    comma = b"," if request.now and (request.opening or any(request.past)) else b""
    return comma, _inside(request.now), b'],"tools":[', _tools_bytes(request.tools), b"]}"


def _inside(messages: List) -> bytes:
    """A list as canonical JSON, without its brackets."""
    return canonical_json(list(messages))[1:-1]


_past_bytes: OfEach[List, bytes] = OfEach(_inside, WHOLE_PASTS_REMEMBERED)
_tools_bytes: ByIdentity[List, bytes] = ByIdentity(_inside, TOOLS_REMEMBERED)
_begun: ByIdentity[Sequence[List], dict[bytes, hashlib._Hash]] = ByIdentity(
    lambda _: {}, WHOLE_PASTS_REMEMBERED
)
"""By the past turns: the opening, and the digest up to the end of the past."""
