"""One connection: it opens within a deadline, reconnects by itself, and leaves no task or socket when it is closed.

nats-py reconnects, with three gaps that are closed here. Its first connect has no deadline. It gives up on temporary
errors, such as credentials that are being replaced. Its close does not wait for its own tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from nats import errors as nats_errors

from anchorwatch.bus.jetstream.client import LOST_CONNECTION, PlainClient, new_client
from anchorwatch.core.errors import Denied, Unavailable

PING_INTERVAL_S = 5
PINGS_OUT_MAX = 2
RECONNECT_PAUSE_S = 0.1
CLOSE_S_MAX = 5.0
SETTLE_S = 0.01

OnError = Callable[[str], None]
OnDenied = Callable[[str, str], None]

# nats-py passes on the server's text in lower case.
_VIOLATION = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"')
_BAD_CREDENTIALS = "authorization violation"


class Connection:
    """One connection to a server or cluster, over one client after the other.

    ``listen`` subscribes on a new client. ``on_denied`` gets (verb, subject) of each denial. ``on_lost`` is called when
    the connection is lost: calls in flight get no answer.
    """

    def __init__(
        self,
        servers: Sequence[str],
        options: Mapping[str, object],
        *,
        plain: bool,
        listen: Callable[[PlainClient], Awaitable[None]],
        on_denied: OnDenied,
        on_lost: Callable[[], None],
        on_error: OnError,
    ) -> None:
        self._servers = list(servers)
        self._options = dict(options)
        self._plain = plain
        self._listen = listen
        self._on_denied = on_denied
        self._on_lost = on_lost
        self._on_error = on_error
        self._up = asyncio.Event()
        self._refused: asyncio.Future[None] | None = None
        self._reopening: asyncio.Task[None] | None = None
        self.closing = False
        self.times = 0
        """How often it has connected."""
        self.client = new_client(plain=plain)

    @property
    def connected(self) -> bool:
        return self._up.is_set() and self.client.is_connected

    async def wait_connected(self, timeout_s: float) -> bool:
        """Wait for the connection; False if there is none after ``timeout_s``, or it was closed."""
        if self.closing:
            return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self.connected and not self.closing:
                    # After a loss the event is still set until `_disconnected` clears it.
                    await (asyncio.sleep(SETTLE_S) if self._up.is_set() else self._up.wait())
        return self.connected

    async def open(self, timeout_s: float) -> None:
        """Connect.

        Raises:
            Denied: the server refuses the credentials.
            Unavailable: no server answers within ``timeout_s``.
        """
        self._refused = asyncio.get_running_loop().create_future()
        connecting = asyncio.create_task(self._connect())
        either: set[asyncio.Future[Any]] = {connecting, self._refused}
        opened = False
        try:
            await asyncio.wait(either, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            opened = connecting.done() and connecting.exception() is None
            servers = ", ".join(self._servers)
            if self._refused.done():
                raise Denied(f"NATS at {servers} refuses the credentials")
            if not opened:
                raise Unavailable(f"no NATS server answers at {servers} within {timeout_s:g} s")
        finally:
            self._refused.cancel()
            self._refused = None
            if not opened:
                await _cancel([connecting])
                await self.close()

    async def round_trip(self) -> None:
        """Return after the server has processed, and perhaps denied, everything sent before."""
        # The ping of the first flush may overtake what nats-py's flusher has not written yet; the second cannot.
        await self.client.flush()
        await self.client.flush()

    async def close(self) -> None:
        """Close the connection; no task or socket is left."""
        self.closing = True
        self._up.clear()
        if self._reopening is not None:
            await _cancel([self._reopening])
        await close_client(self.client)

    async def _connect(self) -> None:
        await self.client.connect(
            servers=self._servers,
            error_cb=self._error,
            disconnected_cb=self._disconnected,
            reconnected_cb=self._reconnected,
            closed_cb=self._closed,
            allow_reconnect=True,
            max_reconnect_attempts=-1,
            reconnect_time_wait=RECONNECT_PAUSE_S,  # type: ignore[arg-type]  # declared int, but passed to sleep
            ping_interval=PING_INTERVAL_S,
            max_outstanding_pings=PINGS_OUT_MAX,
            **self._options,  # type: ignore[arg-type]  # user, password, name, inbox_prefix
        )
        await self._listen(self.client)
        await self.round_trip()
        self._set_connected()

    async def _error(self, error: Exception) -> None:
        text = str(error)
        violation = _VIOLATION.search(text.lower())
        if violation is not None:
            self._on_denied(violation[1], violation[2])
        elif _BAD_CREDENTIALS in text.lower() and self._refused is not None:
            if not self._refused.done():
                self._refused.set_result(None)
        elif self.connected and not isinstance(error, (OSError, nats_errors.UnexpectedEOF)):
            # Without a connection each attempt to reconnect fails: `_disconnected` has reported the loss once.
            self._on_error(f"NATS: {text or type(error).__name__}")

    async def _disconnected(self) -> None:
        if not self.closing and self._up.is_set():
            self._up.clear()
            self._on_error("NATS: the connection was lost")
            self._on_lost()

    async def _reconnected(self) -> None:
        if not self.closing and self._reopening is None:
            self._set_connected()
            self._on_error("NATS: reconnected")

    def _set_connected(self) -> None:
        self.times += 1
        self._up.set()

    async def _closed(self) -> None:
        if not self.closing and self._refused is None and self._reopening is None:
            self._on_error(f"NATS: the server ended the connection: {self.client.last_error}")
            self._reopening = asyncio.create_task(self._reopen())

    async def _reopen(self) -> None:
        try:
            while not self.closing:
                await close_client(self.client)
                self.client = new_client(plain=self._plain)
                try:
                    await self._connect()
                except Exception:  # noqa: BLE001 - as `FastClient._attempt_reconnect`
                    await asyncio.sleep(RECONNECT_PAUSE_S)
                else:
                    self._on_error("NATS: reconnected")
                    return
        finally:
            self._reopening = None


async def close_client(client: PlainClient) -> None:
    """Close a client and all its tasks, even after a lost connection."""
    tasks = client.own_tasks()
    with contextlib.suppress(TimeoutError, AssertionError, *LOST_CONNECTION):
        async with asyncio.timeout(CLOSE_S_MAX):
            await client.close()
    await _cancel(tasks)


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel until all have ended: before Python 3.12, `asyncio.wait_for` may lose a cancellation."""
    others = {task for task in tasks if task is not asyncio.current_task()}
    left = others
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=SETTLE_S)
    await asyncio.gather(*others, return_exceptions=True)
