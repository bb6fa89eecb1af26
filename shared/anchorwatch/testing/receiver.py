"""A webhook receiver on loopback: it records every request, and can leave one unanswered."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from dataclasses import dataclass
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from standardwebhooks import Webhook, WebhookVerificationError

BODY_BYTES_MAX = 1024 * 1024
JOIN_S_MAX = 5.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """A webhook request. ``accepted``: it was answered 2xx, so that its sender may count it as delivered.

    ``record``: journal sequence of the record that its content names.
    """

    webhook_id: str
    at_ms: int
    record: int
    body_sha256: str
    signed: bool
    accepted: bool


class Receiver:
    """Receives until it is closed. ``secret``: the one that the sender signs with."""

    def __init__(self, secret: str) -> None:
        self._webhook = Webhook(secret)
        self._lock = threading.Lock()
        self._arrivals: list[Arrival] = []
        self._hold = False
        self._held = threading.Event()
        self._release = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.receiver = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/notify"

    @property
    def arrivals(self) -> tuple[Arrival, ...]:
        """The requests so far, in order."""
        with self._lock:
            return tuple(self._arrivals)

    @property
    def holding(self) -> bool:
        """Whether a request is held without an answer."""
        return self._held.is_set()

    def hold_next(self) -> None:
        """Hold the next request without an answer."""
        with self._lock:
            self._hold = True

    def release(self) -> None:
        """Reset the connection of the held request."""
        self._release.set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._release.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(JOIN_S_MAX)

    def take(self, headers: dict[str, str], body: bytes) -> bool:
        """Record a request; False: it gets no answer."""
        try:
            self._webhook.verify(body, headers)
            signed = True
        except WebhookVerificationError:
            signed = False
        with self._lock:
            held, self._hold = self._hold, False
            arrival = Arrival(
                webhook_id=headers.get("webhook-id", ""),
                at_ms=time.time_ns() // 1_000_000,
                record=_record(body),
                body_sha256=sha256(body).hexdigest(),
                signed=signed,
                accepted=not held,
            )
            self._arrivals.append(arrival)
        if held:
            self._held.set()
            self._release.wait()
        return not held


def _record(body: bytes) -> int:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return int(json.loads(body)["data"]["record"])
    return 0


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    receiver: Receiver


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        """A notification."""
        length = min(int(self.headers.get("content-length", 0)), BODY_BYTES_MAX)
        body = self.rfile.read(length)
        if len(body) < length:
            # Its sender died in between: nothing has arrived.
            self.close_connection = True
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        if self.server.receiver.take(headers, body):
            self.send_response(204)
            self.end_headers()
            return
        # A linger time of zero makes it a reset: a client that still waits learns that no answer will come.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401 - the base class names them
        """Print nothing: `arrivals` has it."""
