"""The HTTP server: an address that is bound at once, and an end that is the service's to decide."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from anchorwatch.core.errors import BadSettings
from starlette.types import ASGIApp

from anchorwatch_gateway.guard import HEADER_BYTES_MAX

BACKLOG = 512
DRAIN_S = 3
KEEP_ALIVE_S = 15
ADDRESS_FILE = "gateway.json"


class _Server(uvicorn.Server):
    """Signals are the runner's: this one neither takes nor repeats them."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bind(host: str, port: int) -> socket.socket:
    """Listen on the address; port 0 takes any free one.

    Raises:
        BadSettings: it cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        # A port of its own: two gateways on one port would share its connections in silence.
        return socket.create_server((host, port), family=family, backlog=BACKLOG, reuse_port=False)
    except (OSError, OverflowError) as error:
        raise BadSettings(
            f"cannot listen on {host}:{port}: {error}",
            hint="choose another ANCHORWATCH_PORT; 0 takes any free one",
        ) from None


def url_of(listener: socket.socket) -> str:
    """Where a client on this machine reaches it."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def write_address(data_dir: Path, url: str) -> None:
    """Leave the address where others on this machine look for it: a port of 0 is known only now.

    Raises:
        OSError: the directory cannot be written.
    """
    data_dir.mkdir(parents=True, exist_ok=True)
    part = data_dir / f".{ADDRESS_FILE}.{os.getpid()}"
    part.write_text(json.dumps({"url": url, "pid": os.getpid()}) + "\n", encoding="utf-8")
    part.replace(data_dir / ADDRESS_FILE)


async def serve(app: ASGIApp, listener: socket.socket, stopping: asyncio.Event, ready: asyncio.Event) -> None:
    """Serve until ``stopping``; then let what runs end, for a bounded time."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        h11_max_incomplete_event_size=2 * HEADER_BYTES_MAX,
        http="h11",
        ws="none",
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=DRAIN_S,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="http")
    ready.set()
    stop = asyncio.create_task(stopping.wait(), name="stopping")
    await asyncio.wait({serving, stop}, return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    server.should_exit = True
    await serving
