"""The HTTP API, from a client's side: addresses, pages, and errors by their kind."""

from __future__ import annotations

import getpass
import json
import re
import secrets
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

import httpx2

from anchorwatch.core.errors import (
    AnchorWatchError,
    BadInput,
    Conflict,
    Denied,
    NotFound,
    Refused,
    SessionDeleted,
    Unavailable,
)

TIMEOUT_S = 20.0
"""Longer than the gateway waits for any other part, so that it can say which one does not answer."""
SILENCE_S_MAX = 60.0
# A service that was killed is back within a second or two: worth waiting for.
RETRY_S_MAX = 8.0
RETRY_PAUSE_S = 0.2
PAGE_MAX = 200
KEY_HEADER = "Idempotency-Key"
NAME_HEADER = "Anchorwatch-By"

_BY_STATUS: dict[int, type[AnchorWatchError]] = {
    HTTPStatus.BAD_REQUEST: BadInput,
    HTTPStatus.UNAUTHORIZED: Denied,
    HTTPStatus.FORBIDDEN: Denied,
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.CONFLICT: Conflict,
    HTTPStatus.GONE: SessionDeleted,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: BadInput,
    HTTPStatus.UNPROCESSABLE_ENTITY: BadInput,
    HTTPStatus.TOO_MANY_REQUESTS: Unavailable,
}


@dataclass(frozen=True, slots=True)
class Event:
    """A server-sent event."""

    name: str
    id: str
    data: Any


class Api:
    """A client of one gateway. What may be sent twice is tried again while the gateway is away, for a bounded time."""

    def __init__(
        self, url: str, token: str, *, retry_s: float | None = None, workspace: str | None = None
    ) -> None:
        self._url = url.rstrip("/")
        self._retry_s = RETRY_S_MAX if retry_s is None else retry_s
        self._client = httpx2.Client(
            base_url=self._url,
            headers={"Authorization": f"Bearer {token}", **_name()},
            params={} if workspace is None else {"workspace": workspace},
            timeout=TIMEOUT_S,
            trust_env=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._client.close()

    def get(self, path: str, **params: Any) -> Any:  # noqa: ANN401 - JSON
        """The JSON at ``path``; parameters that are None are left out."""
        return self._send("GET", path, params=params)

    def pages(self, path: str, limit: int, *, newest: bool = False, **params: Any) -> list[dict[str, Any]]:  # noqa: ANN401
        """The first ``limit`` entries of a list; ``newest``: the last ones, still oldest first."""
        if newest:
            params["order"] = "desc"
        found: list[dict[str, Any]] = []
        cursor = None
        while len(found) < limit:
            page = self.get(path, **params, cursor=cursor, limit=min(PAGE_MAX, limit - len(found)))
            found += page["data"]
            cursor = page["next"]
            if cursor is None:
                break
        return found[::-1] if newest else found

    def all(self, path: str, **params: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - JSON
        """Every entry of a list; for those that do not grow with time."""
        return self.pages(path, sys.maxsize, **params)

    def post(self, path: str, body: Any, *, key: str | None = None, timeout_s: float = TIMEOUT_S) -> Any:  # noqa: ANN401 - JSON
        """Post ``body``. Under an idempotency key (one is made), trying again is harmless."""
        headers = {KEY_HEADER: key or secrets.token_urlsafe(18)}
        return self._send("POST", path, body=body, headers=headers, timeout_s=timeout_s)

    def delete(self, path: str, *, key: str | None = None, **params: Any) -> Any:  # noqa: ANN401 - JSON
        """Delete the thing at ``path``. Under an idempotency key (one is made), trying again is harmless."""
        headers = {KEY_HEADER: key or secrets.token_urlsafe(18)}
        return self._send("DELETE", path, params=params, headers=headers)

    def put(self, path: str, body: Any) -> Any:  # noqa: ANN401 - JSON
        return self._send("PUT", path, body=body)

    def stream(self, path: str, **params: Any) -> Iterator[Event]:  # noqa: ANN401 - query parameters
        """Server-sent events, without end: after a lost connection it continues after the last one.

        Raises:
            Unavailable: the gateway did not come back.
        """
        last = ""
        deadline = time.monotonic() + self._retry_s
        while True:
            lost: Exception | None = None
            heard = False
            try:
                for line in self._lines(path, params, last):
                    heard = True
                    if line is not None:
                        last = line.id or last
                        yield line
            except (httpx2.TransportError, Unavailable) as error:
                lost = error
            if heard:
                deadline = time.monotonic() + self._retry_s
            if time.monotonic() > deadline:
                raise self._away(lost) from None
            time.sleep(RETRY_PAUSE_S)

    def _lines(self, path: str, params: dict[str, Any], last: str) -> Iterator[Event | None]:
        """One connection's events, and None for whatever else was heard."""
        with self._client.stream(
            "GET",
            path,
            params=_given(params),
            headers={"Last-Event-ID": last} if last else {},
            # An idle gateway sends comments; one that is silent for longer is gone.
            timeout=httpx2.Timeout(TIMEOUT_S, read=SILENCE_S_MAX),
        ) as response:
            if response.status_code != HTTPStatus.OK:
                response.read()
                raise _error(response)
            yield from _events(response.iter_lines())

    def _send(
        self,
        method: str,
        path: str,
        *,
        params: dict[str, Any] | None = None,
        body: Any = None,  # noqa: ANN401 - JSON
        headers: dict[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Any:  # noqa: ANN401 - JSON
        deadline = time.monotonic() + self._retry_s
        while True:
            try:
                response = self._client.request(
                    method,
                    path,
                    params=_given(params or {}),
                    json=body,
                    headers=headers or {},
                    timeout=timeout_s,
                )
                if response.is_success:
                    return response.json()
                error = _error(response)
                if not isinstance(error, Unavailable):
                    raise error
            except httpx2.TransportError as away:
                error = self._away(away)
            except ValueError:
                raise Unavailable(f"the server at {self._url} is not a gateway", hint="check --url") from None
            if time.monotonic() > deadline:
                raise error
            time.sleep(RETRY_PAUSE_S)

    def _away(self, error: Exception | None) -> Unavailable:
        if isinstance(error, Unavailable):
            return error
        if isinstance(error, httpx2.ReadTimeout):
            return Unavailable(
                f"the gateway at {self._url} did not answer in time",
                hint="`anchorwatch doctor` finds the part that does not answer",
            )
        return Unavailable(f"no gateway answers at {self._url}", hint="is the mesh up? `anchorwatch status`")


def _given(params: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}


def _error(response: httpx2.Response) -> AnchorWatchError:
    """The error of a response: from our JSON, or from whatever a proxy made of it."""
    try:
        told = response.json()
        message, hint, code = str(told["message"]), str(told.get("hint", "")), str(told.get("code", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        message, hint, code = f"the gateway answers {response.status_code}", "", ""
    if response.status_code == HTTPStatus.NOT_FOUND and not code:
        return Unavailable("the server there is not a gateway", hint="check --url")
    kind = _BY_STATUS.get(response.status_code)
    if kind is None:
        kind = Unavailable if response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR else Refused
    if kind is Unavailable and response.status_code == HTTPStatus.INTERNAL_SERVER_ERROR:
        # A retry would fail the same way.
        return AnchorWatchError(message, hint=hint)
    return kind(message, hint=hint)


def _events(lines: Iterator[str]) -> Iterator[Event | None]:
    """Read server-sent events: fields, ended by an empty line; a line that begins with a colon is a comment (None)."""
    name, ident, data = "message", "", list[str]()
    for line in lines:
        if line == "":
            if data:
                yield Event(name, ident, json.loads("\n".join(data)))
            name, ident, data = "message", "", []
            continue
        yield None
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "id":
            ident = value
        elif field == "data":
            data.append(value)


def _name() -> dict[str, str]:
    """The header with the name of the account, for the journal; none where the name is unknown or not plain text."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        return {}
    return {NAME_HEADER: name} if re.fullmatch(r"[A-Za-z0-9._@+-]{1,64}", name) else {}
