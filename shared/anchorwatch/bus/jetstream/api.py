"""The server's JetStream API: JSON questions, JSON answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nats.aio.msg import Msg

from anchorwatch.bus.jetstream import failures
from anchorwatch.bus.jetstream.link import NO_RESPONDERS, STATUS_HEADER, Link
from anchorwatch.core.errors import Unavailable

CALL_TIMEOUT_S = 5.0
NANOSECONDS = 1_000_000_000
"""In a second: the API counts so."""


async def api(link: Link, request: str, body: Mapping[str, Any] | None, what: str) -> dict[str, Any]:
    """Ask the JetStream API.

    Raises:
        Unavailable: nobody answers. Otherwise as `failures.answer`.
    """
    payload = b"" if body is None else json.dumps(body).encode()
    reply = await link.call(f"$JS.API.{request}", payload, CALL_TIMEOUT_S)
    if is_unanswered(reply):
        raise Unavailable(f"{what}: JetStream does not answer", hint="is it enabled, and has it a leader?")
    return failures.answer(reply.data, what)


def is_unanswered(message: Msg) -> bool:
    """Whether the server says that nobody listens to the subject."""
    headers: Mapping[str, str] | None = message.headers
    return headers is not None and headers.get(STATUS_HEADER) == NO_RESPONDERS and not message.data
