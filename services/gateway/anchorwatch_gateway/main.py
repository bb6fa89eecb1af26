"""The gateway service: binds its address, serves the HTTP API, and stops when the service stops."""

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
from anchorwatch.service.context import ServiceContext
from starlette.types import ASGIApp

from anchorwatch_gateway.app import build
from anchorwatch_gateway.connections import BoundedConnection
from anchorwatch_gateway.guard import HEADER_BYTES_MAX
from anchorwatch_gateway.parts import assemble

BACKLOG = 512
DRAIN_S = 3
KEEP_ALIVE_S = 15
ADDRESS_FILE = "gateway.json"


async def run(context: ServiceContext) -> None:
    """Serve HTTP until the service stops."""
    parts = await assemble(context)
    app = build(parts)
    listener = bind(context.settings.host, context.settings.port)
    url = url_of(listener)
    context.log.info("gateway.listening", url=url)
    try:
        write_address(context.settings.data_dir, url)
    except OSError as error:
        context.log.info("gateway.address_file_failed", reason=str(error))
    await serve(app, listener, context.stopping, context.ready)


def bind(host: str, port: int) -> socket.socket:
    """Listen on the address. Port 0 takes any free port.

    Raises:
        BadSettings: the address is taken or invalid.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        # Not a shared port: two gateways on one port would silently share its connections.
        return socket.create_server((host, port), family=family, backlog=BACKLOG, reuse_port=False)
    except (OSError, OverflowError) as error:
        raise BadSettings(
            f"cannot listen on {host}:{port}: {error}",
            hint="choose another ANCHORWATCH_PORT; 0 takes any free one",
        ) from None


def url_of(listener: socket.socket) -> str:
    """The URL for clients on this machine."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def write_address(data_dir: Path, url: str) -> None:
    """Write the URL for other processes of this machine: the number of port 0 is known only now.

    Raises:
        OSError: the directory cannot be written.
    """
    data_dir.mkdir(parents=True, exist_ok=True)
    part = data_dir / f".{ADDRESS_FILE}.{os.getpid()}"
    part.write_text(json.dumps({"url": url, "pid": os.getpid()}) + "\n", encoding="utf-8")
    part.replace(data_dir / ADDRESS_FILE)


class _Server(uvicorn.Server):
    """Handles no signals: the service runner does."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(app: ASGIApp, listener: socket.socket, stopping: asyncio.Event, ready: asyncio.Event) -> None:
    """Serve until ``stopping``, then let open requests end within `DRAIN_S`."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        h11_max_incomplete_event_size=2 * HEADER_BYTES_MAX,
        http=BoundedConnection,
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
