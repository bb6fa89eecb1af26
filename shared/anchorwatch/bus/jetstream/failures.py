"""What the server says when it refuses, as this product's errors.

The numbers are NATS's own; they are listed in server/errors.json of nats-server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from anchorwatch.bus.port import BatchRefused, StreamMissing, WrongLastSequence
from anchorwatch.core.errors import AnchorWatchError, BadInput, NotFound, TooLarge, Unavailable

_STREAM_NOT_FOUND = 10059
_WRONG_LAST_SEQUENCE = 10071
# Of a replicated stream: another fenced write on that subject is in flight, so it may be no loss at all.
_WRONG_LAST_SEQUENCE_IN_FLIGHT = 10164
_TOO_LARGE = frozenset({10054, 10097})
_BATCH = frozenset({10174, 10175, 10176, 10177, 10178, 10179, 10199, 10200, 10201, 10202, 10210, 10211})
# A cluster that is not complete yet says that it has no peers for a stream, as if the request were wrong.
_NO_PEERS = 10005
# More replicas than one wanted of a server that has no cluster: said as if it were the server's fault.
_NO_CLUSTER = 10074
# A stream or a consumer of that name, made otherwise, or being made.
_NAME_TAKEN = frozenset({10013, 10058, 10148})
_CLIENT_FAULT = 400
_MISSING = 404


class NameTaken(BadInput):
    """There is a stream or a consumer of that name; in a cluster it may not be shown yet."""


def answer(data: bytes, what: str) -> dict[str, Any]:
    """The JSON object of an answer.

    Raises:
        AnchorWatchError: it says that the request failed; ``what`` names the request in the text.
        Unavailable: it is no JSON object.
    """
    try:
        body = json.loads(data)
    except ValueError as error:
        raise Unavailable(f"{what}: the server's answer is no JSON: {data[:100]!r}") from error
    if not isinstance(body, dict):
        raise Unavailable(f"{what}: the server's answer is no JSON object: {data[:100]!r}")
    if "error" in body:
        raise refusal(body["error"], what)
    return body


def refusal(error: Mapping[str, Any], what: str) -> AnchorWatchError:
    """The error that stands for the server's ``{code, err_code, description}``."""
    number = int(error.get("err_code", 0))
    status = int(error.get("code", 0))
    text = f"{what}: {error.get('description', 'refused')} ({number or status})"
    if number in (_WRONG_LAST_SEQUENCE, _WRONG_LAST_SEQUENCE_IN_FLIGHT):
        return WrongLastSequence(text, spurious_possible=number == _WRONG_LAST_SEQUENCE_IN_FLIGHT)
    if number == _STREAM_NOT_FOUND:
        return StreamMissing(text)
    if number in _TOO_LARGE:
        return TooLarge(text)
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
