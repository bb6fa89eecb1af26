"""Who asks. The API has one token: whoever holds it is a person of this mesh, and may say their name; records keep it.

The token is what is proved. The name is the word of somebody who holds it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextvars import ContextVar

from anchorwatch_gateway.errors import BadRequest

NAME_HEADER = "Anchorwatch-By"
UNNAMED = "a person"
NAME_FORM = "1-64 letters, digits, spaces and . _ @ + -, the first and the last no space"
_NAME = re.compile(r"[\w.@+-](?:[\w.@+ -]{0,62}[\w.@+-])?")
_HEADER = NAME_HEADER.lower().encode()
_caller: ContextVar[str] = ContextVar("caller", default=UNNAMED)


def by() -> str:
    """The name of whoever sent the request that is being served, for the records that it leads to."""
    return _caller.get()


def note(headers: Mapping[bytes, bytes]) -> None:
    """Take the caller's name from the request's headers.

    Raises:
        BadRequest: it is none.
    """
    try:
        name = headers.get(_HEADER, UNNAMED.encode()).decode()
    except UnicodeDecodeError:
        name = ""
    if not _NAME.fullmatch(name):
        raise BadRequest(f"the header {NAME_HEADER} holds no name", hint=f"send {NAME_FORM}, in UTF-8")
    _caller.set(name)
