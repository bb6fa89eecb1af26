"""The life of a connection: it is opened within a deadline, comes back by itself, and leaves nothing when it is closed.

nats-py reconnects, with three gaps that are closed here: its first connect has no deadline, it gives up for good on errors
that pass (credentials being replaced), and its close does not wait for its own tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from nats import errors as nats_errors

from anchorwatch.bus.jetstream.client import LOST, PlainClient, new_client
from anchorwatch.core.errors import Denied, Unavailable

PING_INTERVAL_S = 5
PINGS_OUT_MAX = 2
RECONNECT_PAUSE_S = 0.1
CLOSE_S_MAX = 5.0
SETTLE_S = 0.01

OnError = Callable[[str], None]
OnDenied = Callable[[str, str], None]

# nats-py hands over the server's text in lower case.
_VIOLATION = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"')
_BAD_CREDENTIALS = "authorization violation"


class Connection:
    """One connection to a server or cluster, whatever clients it takes.

    ``listen`` subscribes on a new client; ``on_denied`` is told (verb, subject) of each denial, ``on_lost`` that what was
    under way will get no answer.
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
        """How often it was connected."""
        self.client = new_client(plain=plain)

    @property
    def connected(self) -> bool:
        return self._up.is_set() and self.client.is_connected

    async def wait_up(self, timeout_s: float) -> bool:
        """Wait for the connection; False when it is not there after ``timeout_s``, or was closed."""
        if self.closing:
            return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self.connected and not self.closing:
                    # Between the loss and `_disconnected`, which clears it, the event does not make us wait.
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
        """Be sure that the server has seen, and has denied or not, what was sent before."""
        # The ping of a flush overtakes what nats-py's flusher has not written yet; that of the second one cannot.
        await self.client.flush()
        await self.client.flush()

    async def close(self) -> None:
        """End it: no task and no socket is left."""
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
            reconnect_time_wait=RECONNECT_PAUSE_S,  # type: ignore[arg-type]  # declared int, slept as it is
            ping_interval=PING_INTERVAL_S,
            max_outstanding_pings=PINGS_OUT_MAX,
            **self._options,  # type: ignore[arg-type]  # user, password, name, inbox_prefix
        )
        await self._listen(self.client)
        await self.round_trip()
        self._set_up()

    async def _error(self, error: Exception) -> None:
        text = str(error)
        violation = _VIOLATION.search(text.lower())
        if violation is not None:
            self._on_denied(violation[1], violation[2])
        elif _BAD_CREDENTIALS in text.lower() and self._refused is not None:
            if not self._refused.done():
                self._refused.set_result(None)
        elif self.connected and not isinstance(error, (OSError, nats_errors.UnexpectedEOF)):
            # While it is away, each attempt to come back fails anew: `_disconnected` has told it once.
            self._on_error(f"NATS: {text or type(error).__name__}")

    async def _disconnected(self) -> None:
        if not self.closing and self._up.is_set():
            self._up.clear()
            self._on_error("NATS: the connection was lost")
            self._on_lost()

    async def _reconnected(self) -> None:
        if not self.closing and self._reopening is None:
            self._set_up()
            self._on_error("NATS: the connection is back")

    def _set_up(self) -> None:
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
                    self._on_error("NATS: the connection is back")
                    return
        finally:
            self._reopening = None


async def close_client(client: PlainClient) -> None:
    """Close it and all its tasks, also where its connection was lost meanwhile."""
    tasks = client.own_tasks()
    with contextlib.suppress(TimeoutError, AssertionError, *LOST):
        async with asyncio.timeout(CLOSE_S_MAX):
            await client.close()
    await _cancel(tasks)


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """End them, however often they have to be told: before Python 3.12, `asyncio.wait_for` may forget that it was cancelled."""
    others = {task for task in tasks if task is not asyncio.current_task()}
    left = others
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=SETTLE_S)
    await asyncio.gather(*others, return_exceptions=True)
