"""A gateway that answers what a test tells it to, over real HTTP, and notes what it was asked."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "test-token"


@dataclass
class Asked:
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class Gateway:
    """``answers``: for each "METHOD /path", the answers in turn (status, JSON); the last one stays."""

    url: str = ""
    answers: dict[str, list[tuple[int, Any]]] = field(default_factory=dict)
    streams: dict[str, list[str]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)

    def answer(self, what: str, *answers: tuple[int, Any]) -> None:
        self.answers[what] = list(answers)

    def next_answer(self, what: str) -> tuple[int, Any]:
        answers = self.answers.get(what)
        if not answers:
            return 404, {"code": "not_found", "message": f"there is no {what}", "hint": "look elsewhere"}
        return answers.pop(0) if len(answers) > 1 else answers[0]


@contextlib.contextmanager
def gateway() -> Iterator[Gateway]:
    """One, for the length of a ``with`` block."""
    response = Gateway()

    class Handler(BaseHTTPRequestHandler):
        def do(self) -> None:
            where = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            query = {name: values[0] for name, values in parse_qs(where.query).items()}
            headers = {name.lower(): value for name, value in self.headers.items()}
            response.asked.append(
                Asked(self.command, where.path, query, headers, json.loads(body) if body else None)
            )
            if headers.get("authorization") != f"Bearer {TOKEN}":
                self.reply(401, {"code": "unauthorized", "message": "the bearer token is wrong", "hint": ""})
            elif where.path in response.streams:
                self.stream(response.streams[where.path])
            else:
                self.reply(*response.next_answer(f"{self.command} {where.path}"))

        do_GET = do_POST = do_PUT = do_DELETE = do  # noqa: N815 - the names that http.server calls

        def reply(self, status: int, value: Any) -> None:
            data = value.encode() if isinstance(value, str) else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def stream(self, parts: list[str]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            if parts:
                self.wfile.write(parts.pop(0).encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    response.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield response
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
