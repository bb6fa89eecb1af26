"""A real HTTP server that answers chat.completions by a script: answers, refusals, and malformed bodies.

    with ModelServer([calls(call("launch_instances", {"count": 2})), text("Done.")]) as server:
        …  # ANCHORWATCH_MODEL_URL=server.url
        assert server.requests[0].json["model"] == "test-model"

The script is a list of replies (then `server.afterwards`, forever) or a function of the request's JSON. As a process:
`python -m tests.support.model_server --port 0 --script fleet` prints its URL as one line of JSON, and serves until it ends.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import select
import socket
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

WAIT_S_MAX = 60.0
PING_S = 0.05
BODY_BYTES_MAX = 64 * 1024 * 1024
MODEL = "test-model"
KNOWN_PATHS = ("/chat/completions", "/chat/completions/input_tokens", "/tokenize")

Json = dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """An answer of the server. ``delay_s``: before the headers. ``cut_at``: reset the connection after this number of
    bytes of the body. ``stall_at``: send nothing after this number of bytes of the body (``ping``: comments only), until
    the client disconnects or the server closes. ``silent``: send no answer until then.
    """

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    cut_at: int | None = None
    stall_at: int | None = None
    ping: bool = False
    silent: bool = False


Script = Sequence[Reply] | Callable[[Json], Reply]


@dataclass(frozen=True)
class Received:
    """A request that arrived."""

    path: str
    headers: Mapping[str, str]
    json: Json


# ---------------------------------------------------------------- replies


def raw(
    body: str | bytes, status: int = 200, content_type: str = "application/json", **headers: str
) -> Reply:
    """Any body. Keyword ``retry_after`` becomes the header ``retry-after``."""
    content = body.encode() if isinstance(body, str) else body
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(content, status, {"content-type": content_type, **named})


def answer(message: Any, finish: Any = "stop", **changes: Any) -> Reply:
    """A completion around ``message``; ``changes`` replace members of it, and those that are `...` are left out."""
    body: Json = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": MODEL,
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    }
    body.update(changes)
    return raw(json.dumps({key: value for key, value in body.items() if value is not ...}))


def text(content: str, **changes: Any) -> Reply:
    """An answer in words."""
    return answer({"role": "assistant", "content": content}, **changes)


def call(name: Any, arguments: Any = "{}", call_id: Any = "call_1") -> Json:
    """A tool call; arguments other than text are sent as JSON text."""
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": written}}


def calls(*wanted: Json, content: str | None = None, finish: Any = "tool_calls", **changes: Any) -> Reply:
    """An answer with tool calls."""
    return answer({"role": "assistant", "content": content, "tool_calls": list(wanted)}, finish, **changes)


def error(status: int, message: str, code: Any = None, kind: str = "error", **headers: str) -> Reply:
    """An error in OpenAI's shape; status 200 is possible too."""
    return raw(
        json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}}),
        status,
        **headers,
    )


def flat_error(status: int, message: str, code: Any, kind: str = "BadRequestError") -> Reply:
    """An error in the flat shape of vLLM."""
    return raw(
        json.dumps({"object": "error", "message": message, "type": kind, "param": None, "code": code}), status
    )


def rate_limited(retry_after: str) -> Reply:
    """429 with the header Retry-After."""
    return error(429, "slow down", "rate_limit_exceeded", retry_after=retry_after)


def html(status: int = 200) -> Reply:
    """A web page where JSON was expected."""
    return raw("<!DOCTYPE html><html><body>Welcome</body></html>", status, "text/html")


def streamed(reply: Reply, *, done: bool = True) -> Reply:
    """A whole answer as a stream of three chunks: content, finish reason, and usage."""
    body = json.loads(reply.body)
    choice = body["choices"][0]
    delta = dict(choice["message"])
    if delta.get("tool_calls"):
        delta["tool_calls"] = [{"index": n, **each} for n, each in enumerate(delta["tool_calls"])]
    chunks = [
        {"model": body["model"], "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {
            "model": body["model"],
            "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}],
        },
        {"model": body["model"], "choices": [], "usage": body.get("usage")},
    ]
    return events(*chunks, done=done)


def events(*chunks: Any, done: bool = True) -> Reply:
    """These chunks as server-sent events; text is sent unchanged."""
    said = [chunk if isinstance(chunk, str) else json.dumps(chunk) for chunk in (*chunks, *["[DONE]"][:done])]
    return raw("".join(f"data: {each}\n\n" for each in said), content_type="text/event-stream")


def stalled(reply: Reply, at_bytes: int) -> Reply:
    """The reply, stalled after this number of bytes."""
    return replace(reply, stall_at=at_bytes)


def pinging(reply: Reply, at_bytes: int) -> Reply:
    """The reply; after this number of bytes only comments follow, repeatedly."""
    return replace(reply, stall_at=at_bytes, ping=True)


def slow(reply: Reply, delay_s: float) -> Reply:
    """The reply, delayed."""
    return replace(reply, delay_s=delay_s)


def cut(reply: Reply, at_bytes: int = 20) -> Reply:
    """The reply, with a reset connection in its middle."""
    return replace(reply, cut_at=at_bytes)


def silent() -> Reply:
    """No answer."""
    return Reply(silent=True)


# ---------------------------------------------------------------- the server


class ModelServer:
    """Serves a script on loopback; records the requests (`requests`) and the clients that left unanswered (`gone`).

    ``routes`` answers every request by its path, in place of a script.
    """

    def __init__(
        self,
        script: Script = (),
        *,
        port: int = 0,
        afterwards: Reply | None = None,
        routes: Callable[[Received], Reply] | None = None,
    ) -> None:
        self._script = script
        self.routes = routes
        self.afterwards = afterwards or text("Nothing needs to be done.")
        self.requests: list[Received] = []
        self.gone = 0
        self.closing = threading.Event()
        self._changed = threading.Condition()
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.owner = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        """The base URL for ANCHORWATCH_MODEL_URL."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def script(self, script: Script) -> None:
        """Start another script, and clear the recorded requests."""
        with self._changed:
            self._script = script
            self.requests.clear()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.close_connections()
        self._server.server_close()
        self._thread.join(WAIT_S_MAX)

    def wait_for_requests(self, count: int) -> None:
        """Wait until ``count`` requests have arrived.

        Raises:
            TimeoutError: they have not.
        """
        self._wait(lambda: len(self.requests) >= count, f"{count} requests")

    def wait_for_gone(self, count: int = 1) -> None:
        """Wait until ``count`` clients have closed their connection without an answer.

        Raises:
            TimeoutError: they have not.
        """
        self._wait(lambda: self.gone >= count, f"{count} clients to go")

    def _wait(self, reached: Callable[[], bool], what: str) -> None:
        with self._changed:
            if not self._changed.wait_for(reached, WAIT_S_MAX):
                raise TimeoutError(
                    f"waited {WAIT_S_MAX:g} s for {what}; {len(self.requests)} requests, {self.gone} gone"
                )

    def receive(self, received: Received) -> Reply:
        """Record a request, and return its answer."""
        with self._changed:
            self.requests.append(received)
            number = len(self.requests)
            script = self._script
            self._changed.notify_all()
        if self.routes is not None:
            return self.routes(received)
        if callable(script):
            return script(received.json)
        return script[number - 1] if number <= len(script) else self.afterwards

    def note_gone(self) -> None:
        with self._changed:
            self.gone += 1
            self._changed.notify_all()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = True
    owner: ModelServer

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        """Close kept-alive connections: their threads wait in a read."""
        with self._lock:
            waiting = list(self._open)
        for each in waiting:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that disconnected is not an error of the server."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        if self.server.owner.routes is not None:
            self._send(self.server.owner.receive(Received(self.path, self._named_headers(), {})))
            return
        body = json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}).encode()
        self._send(raw(body))

    def do_POST(self) -> None:
        length = min(int(self.headers.get("content-length", 0)), BODY_BYTES_MAX)
        asked = json.loads(self.rfile.read(length))
        reply = self.server.owner.receive(Received(self.path, self._named_headers(), asked))
        if self.server.owner.routes is None and not self.path.endswith(KNOWN_PATHS):
            reply = error(404, f"there is nothing at {self.path}")
        if (reply.silent or reply.delay_s) and not self._still_there(None if reply.silent else reply.delay_s):
            self.server.owner.note_gone()
            self.close_connection = True
            return
        try:
            self._send(reply)
        except OSError:
            self.server.owner.note_gone()
            self.close_connection = True

    def _named_headers(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.headers.items()}

    def _still_there(self, delay_s: float | None) -> bool:
        """Wait (None: forever); False as soon as the client or the server has closed."""
        readable, _, _ = select.select([self.connection], [], [], delay_s)
        return not readable

    def _send(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(reply.body) + (BODY_BYTES_MAX if reply.ping else 0)))
        self.end_headers()
        if reply.stall_at is not None:
            self.wfile.write(reply.body[: reply.stall_at])
            with contextlib.suppress(OSError):
                while self._still_there(PING_S if reply.ping else None):
                    self.wfile.write(b": still here\n\n")
            self.server.owner.note_gone()
            self.close_connection = True
            return
        if reply.cut_at is None:
            self.wfile.write(reply.body)
            return
        self.wfile.write(reply.body[: reply.cut_at])
        self.close_connection = True
        # A linger time of 0 sends a reset, as when the remote machine dies.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it
        """Print nothing: `requests` has every request."""


# ---------------------------------------------------------------- scripts by name


def fleet(asked: Json) -> Reply:
    """Launch two instances once in a turn, then end it. Works with any request that offers `launch_instances`."""
    messages = asked["messages"]
    answered = messages and messages[-1].get("role") == "tool"
    offered = {tool["function"]["name"] for tool in asked.get("tools", [])}
    if answered or "launch_instances" not in offered:
        return text("The fleet works; nothing more needs to be done.")
    return calls(call("launch_instances", {"count": 2, "launch_priority": "normal"}))


SCRIPTS: dict[str, Script] = {"fleet": fleet, "quiet": ()}


def main() -> None:
    parser = argparse.ArgumentParser(description="a chat.completions server for tests")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--script", choices=sorted(SCRIPTS), default="quiet")
    arguments = parser.parse_args()
    with (
        ModelServer(SCRIPTS[arguments.script], port=arguments.port) as server,
        contextlib.suppress(KeyboardInterrupt),
    ):
        print(json.dumps({"url": server.url, "model": MODEL}), flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
