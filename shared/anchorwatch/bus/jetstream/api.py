"""The server's JetStream API: JSON requests and answers, its errors as this product's errors, and its times.

The error numbers are NATS's own; server/errors.json of nats-server lists them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from nats.aio.msg import Msg

from anchorwatch.bus.jetstream.link import NO_RESPONDERS, STATUS_HEADER, Link
from anchorwatch.bus.port import BatchRefused, StreamFull, StreamMissing, WrongLastSequence
from anchorwatch.core.errors import AnchorWatchError, BadInput, NotFound, TooLarge, Unavailable

CALL_TIMEOUT_S = 5.0
NANOSECONDS = 1_000_000_000
"""In a second: the API's unit of time."""
_STREAM_NOT_FOUND = 10059
_WRONG_LAST_SEQUENCE = 10071
# Of a replicated stream: another fenced write on that subject is in flight, so the fence may still hold.
_WRONG_LAST_SEQUENCE_IN_FLIGHT = 10164
# The limits of a stream.
_LIMITS: Mapping[int, type[AnchorWatchError]] = {10054: TooLarge, 10097: TooLarge, 10077: StreamFull}
_BATCH = frozenset({10174, 10175, 10176, 10177, 10178, 10179, 10199, 10200, 10201, 10202, 10210, 10211})
# An incomplete cluster reports that a stream has no suitable peers, with the status of a wrong request.
_NO_PEERS = 10005
# More than one replica on a server without a cluster; the server reports it as its own failure.
_NO_CLUSTER = 10074
# A stream or consumer with this name exists with another configuration, or is being made.
_NAME_TAKEN = frozenset({10013, 10058, 10148})
_CLIENT_FAULT = 400
_MISSING = 404


class NameTaken(BadInput):
    """A stream or consumer with this name exists; a cluster may not list it yet."""


async def api(link: Link, request: str, body: Mapping[str, Any] | None, what: str) -> dict[str, Any]:
    """Call the JetStream API; ``what`` names the request in errors.

    Raises:
        Unavailable: JetStream does not answer. Otherwise as `parse_answer`.
    """
    payload = b"" if body is None else json.dumps(body).encode()
    reply = await link.call(f"$JS.API.{request}", payload, CALL_TIMEOUT_S)
    if is_unanswered(reply):
        raise Unavailable(
            f"{what}: JetStream does not answer", hint="check that it is enabled and has a leader"
        )
    return parse_answer(reply.data, what)


def is_unanswered(message: Msg) -> bool:
    """Whether the server reports that the subject has no subscriber."""
    headers: Mapping[str, str] | None = message.headers
    return headers is not None and headers.get(STATUS_HEADER) == NO_RESPONDERS and not message.data


def parse_answer(data: bytes, what: str) -> dict[str, Any]:
    """The JSON object of an answer.

    Raises:
        AnchorWatchError: the server reports a failure; ``what`` names the request in the text.
        Unavailable: the answer is not a JSON object.
    """
    try:
        body = json.loads(data)
    except ValueError as error:
        raise Unavailable(f"{what}: the server's answer is not JSON: {data[:100]!r}") from error
    if not isinstance(body, dict):
        raise Unavailable(f"{what}: the server's answer is not a JSON object: {data[:100]!r}")
    if "error" in body:
        raise error_of(body["error"], what)
    return body


def error_of(error: Mapping[str, Any], what: str) -> AnchorWatchError:
    """The error for the server's ``{code, err_code, description}``."""
    number = int(error.get("err_code", 0))
    status = int(error.get("code", 0))
    text = f"{what}: {error.get('description', 'refused')} ({number or status})"
    if number in (_WRONG_LAST_SEQUENCE, _WRONG_LAST_SEQUENCE_IN_FLIGHT):
        return WrongLastSequence(text, spurious_possible=number == _WRONG_LAST_SEQUENCE_IN_FLIGHT)
    if number == _STREAM_NOT_FOUND:
        return StreamMissing(text)
    if number in _LIMITS:
        return _LIMITS[number](text)
    if number in _BATCH:
        return BatchRefused(text)
    if number == _NO_PEERS:
        return Unavailable(text)
    if number == _NO_CLUSTER:
        return BadInput(text, hint="replicas need a cluster: set replicas to 1")
    if number in _NAME_TAKEN:
        return NameTaken(text)
    if status == _MISSING:
        return NotFound(text)
    if status == _CLIENT_FAULT:
        return BadInput(text)
    return Unavailable(text)


def rfc3339(at_ms: int) -> str:
    """Unix milliseconds in the server's form of a time: RFC 3339, UTC."""
    seconds, milliseconds = divmod(at_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds:03d}Z"


def unix_ms(text: str) -> int:
    """The Unix milliseconds of a time in UTC, rounded down."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    seconds = int(datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp())
    return seconds * 1000 + int(f"{fraction[:3]:0<3}")
