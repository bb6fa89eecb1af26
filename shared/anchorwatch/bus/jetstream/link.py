"""One connection: calls with an answer, calls with many, and what becomes of them when the connection goes.

All answers come to one inbox that lives as long as the connection. A call that is waiting fails at once, not after its
timeout, when the connection is lost (`Disconnected`) or the server denies its subject (`Denied`).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from nats import errors as nats_errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from anchorwatch.bus.port import Disconnected
from anchorwatch.core.errors import AnchorWatchError, BadInput, Denied, TooLarge, Unavailable

STATUS_HEADER = "Status"
NO_RESPONDERS = "503"

PING_INTERVAL_S = 5
RECONNECT_PAUSE_S = 0.1
CLOSE_S_MAX = 5.0
# nats-py hands over the server's text in lower case.
_VIOLATION = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"')
_HEADER_LINE_BYTES = len("NATS/1.0\r\n\r\n")

OnError = Callable[[str], None]


class Waiter(Protocol):
    """Somebody who waits for messages of one inbox token."""

    @property
    def subjects(self) -> Sequence[str]:
        """What was sent to: when the server denies one of these, the waiter fails."""
        ...

    def receive(self, message: Msg) -> None: ...
    def fail(self, error: AnchorWatchError) -> None: ...


class Call:
    """Waits for one answer, or for several: until ``complete`` says of one that it is the last."""

    def __init__(self, subjects: Sequence[str], complete: Callable[[Msg], bool] | None = None) -> None:
        self._subjects = subjects
        self.messages: list[Msg] = []
        self._complete = complete
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def subjects(self) -> Sequence[str]:
        return self._subjects

    def receive(self, message: Msg) -> None:
        self.messages.append(message)
        if not self.done.done() and (self._complete is None or self._complete(message)):
            self.done.set_result(None)

    def fail(self, error: AnchorWatchError) -> None:
        if not self.done.done():
            self.done.set_exception(error)

    def end(self) -> None:
        """Forget it; a failure that came too late is no one's business."""
        if not self.done.cancel():
            self.done.exception()


class Link:
    """A connection that comes back by itself."""

    def __init__(
        self, servers: Sequence[str], options: Mapping[str, object], inbox: str, on_error: OnError
    ) -> None:
        self._servers = list(servers)
        self._options = dict(options)
        self._on_error = on_error
        self._inbox = f"{inbox}.{secrets.token_hex(8)}"
        self._tokens = itertools.count(1)
        self._waiters: dict[str, Waiter] = {}
        self._subscribed: dict[int, tuple[str, str, Callable[[Msg], None]]] = {}
        self._subscriptions: dict[int, Subscription] = {}
        self._client = Client()
        self._up = asyncio.Event()
        self._refused: asyncio.Future[str] | None = None
        self._closing = False
        self._reopening: asyncio.Task[None] | None = None

    # Life.

    async def open(self, timeout_s: float) -> None:
        """Connect.

        Raises:
            Denied: the server refuses the credentials, or the inbox.
            Unavailable: no server answers within ``timeout_s``.
        """
        loop = asyncio.get_running_loop()
        self._refused = loop.create_future()
        connecting = asyncio.create_task(self._connect_client())
        either: set[asyncio.Future[Any]] = {connecting, self._refused}
        await asyncio.wait(either, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        refused, self._refused = self._refused, None
        if connecting.done() and not connecting.cancelled() and connecting.exception() is None:
            refused.cancel()
            if self._subscription_denied:
                await self.close()
                raise Denied(self._subscription_denied, hint="allow the user to subscribe to its own inbox")
            return
        connecting.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await connecting
        await self.close()
        servers = ", ".join(self._servers)
        if refused.done():
            raise Denied(f"NATS at {servers} refuses the credentials: {refused.result()}")
        refused.cancel()
        raise Unavailable(f"no NATS server answers at {servers} within {timeout_s:g} s")

    async def _connect_client(self) -> None:
        self._subscription_denied = ""
        client = self._client
        await client.connect(
            servers=self._servers,
            error_cb=self._error,
            disconnected_cb=self._disconnected,
            reconnected_cb=self._reconnected,
            closed_cb=self._closed,
            allow_reconnect=True,
            max_reconnect_attempts=-1,
            reconnect_time_wait=RECONNECT_PAUSE_S,  # type: ignore[arg-type]  # declared int, slept as it is
            ping_interval=PING_INTERVAL_S,
            max_outstanding_pings=2,
            **self._options,  # type: ignore[arg-type]  # user, password, name
        )
        await self._listen(f"{self._inbox}.*", "", self._dispatch)
        for number, (subject, queue, receive) in self._subscribed.items():
            self._subscriptions[number] = await self._listen(subject, queue, receive)
        await self._round_trip()
        self._up.set()

    async def _round_trip(self) -> None:
        """Be sure that the server has seen, and has denied or not, what was sent before."""
        # The ping of a flush overtakes what nats-py's flusher has not written yet; that of the second one cannot.
        await self._client.flush()
        await self._client.flush()

    async def close(self) -> None:
        """End everything: no task and no socket is left."""
        self._closing = True
        self._up.clear()
        if self._reopening is not None:
            self._reopening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reopening
        self._fail_all(Disconnected("the bus was closed"))
        await self._close_client(self._client)

    @staticmethod
    async def _close_client(client: Client) -> None:
        # What close() cancels it does not wait for, and says nowhere else.
        tasks = [client._reading_task, client._flusher_task, client._ping_interval_task]  # noqa: SLF001
        tasks += [client._reconnection_task]  # noqa: SLF001
        tasks += [each._wait_for_msgs_task for each in client._subs.values()]  # noqa: SLF001
        with contextlib.suppress(TimeoutError, OSError, nats_errors.Error, AssertionError):
            async with asyncio.timeout(CLOSE_S_MAX):
                await client.close()
        left = [task for task in tasks if task is not None and task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    @property
    def connected(self) -> bool:
        return self._up.is_set() and self._client.is_connected

    @property
    def payload_bytes_max(self) -> int:
        """The largest message that the server takes, headers included."""
        return self._client.max_payload

    async def wait_up(self, timeout_s: float) -> bool:
        """Wait for the connection; False when it is not there after ``timeout_s``."""
        if self.connected:
            return True
        if self._closing:
            return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._up.wait()
        return self.connected

    # Sending.

    async def send(
        self, subject: str, payload: bytes, reply: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Hand a message to the connection as it is now; no answer is awaited.

        Raises:
            Disconnected, TooLarge, BadInput: it cannot be sent.
        """
        size = len(payload)
        if headers:
            size += _HEADER_LINE_BYTES + sum(
                len(k.encode()) + len(v.encode()) + 4 for k, v in headers.items()
            )
        if size > self.payload_bytes_max:
            # The server would not answer, but end the connection.
            raise TooLarge(f"{size} bytes for {subject}: the server takes {self.payload_bytes_max}")
        try:
            await self._client.publish(subject, payload, reply, dict(headers) if headers else None)
        except (nats_errors.BadSubjectError, nats_errors.BadHeaderError) as error:
            raise BadInput(f"cannot publish to {subject[:200]!r}: {error}") from error
        except (nats_errors.Error, OSError) as error:
            raise Disconnected(f"cannot publish to {subject}: {error}") from error

    async def call(
        self,
        subject: str,
        payload: bytes = b"",
        timeout_s: float = 5.0,
        headers: Mapping[str, str] | None = None,
    ) -> Msg:
        """Send, and give back the answer (which may be status 503: nobody takes the subject).

        Raises:
            Unavailable: none within ``timeout_s``; Disconnected: the connection is away, or went away.
            Denied: the credentials do not allow the subject.
        """
        with self.calling((subject,)) as (call, reply):
            await self._ready(subject, timeout_s)
            await self.send(subject, payload, reply, headers)
            await self.settle(call, timeout_s)
            return call.messages[0]

    async def call_many(
        self, subject: str, payload: bytes, timeout_s: float, complete: Callable[[Msg], bool]
    ) -> list[Msg]:
        """Send, and give back all answers up to the one of which ``complete`` says that it is the last."""
        with self.calling((subject,), complete) as (call, reply):
            await self._ready(subject, timeout_s)
            await self.send(subject, payload, reply)
            await self.settle(call, timeout_s)
            return call.messages

    @contextlib.contextmanager
    def calling(
        self, subjects: Sequence[str], complete: Callable[[Msg], bool] | None = None
    ) -> Iterator[tuple[Call, str]]:
        """A call for the length of a ``with`` block, and the inbox for its answers."""
        call = Call(subjects, complete)
        token = str(next(self._tokens))
        self._waiters[token] = call
        try:
            yield call, f"{self._inbox}.{token}"
        finally:
            del self._waiters[token]
            call.end()

    async def settle(self, call: Call, timeout_s: float) -> None:
        """Wait until the call is complete or has failed."""
        # Cheaper than asyncio.timeout, and every publish passes here.
        timer = asyncio.get_running_loop().call_later(
            timeout_s, call.fail, Unavailable(f"no answer to {call.subjects[-1]} within {timeout_s:g} s")
        )
        try:
            await call.done
        finally:
            timer.cancel()

    async def _ready(self, subject: str, timeout_s: float) -> None:
        if not self.connected and not await self.wait_up(timeout_s):
            raise Disconnected(f"no connection to NATS for {subject}")

    async def ready(self, subject: str, timeout_s: float) -> None:
        """Wait for the connection.

        Raises:
            Disconnected: it is not there after ``timeout_s``.
        """
        await self._ready(subject, timeout_s)

    # Listening.

    def new_inbox(self) -> str:
        """A subject of this connection for messages of many kinds."""
        return f"{self._inbox}.c.{next(self._tokens)}"

    async def listen(self, subject: str, receive: Callable[[Msg], None], queue: str = "") -> int:
        """Call ``receive`` for each message, across reconnects, until `unlisten`.

        Raises:
            Denied: the credentials do not allow the subject.
            Disconnected: the connection is away.
        """
        await self._ready(subject, CLOSE_S_MAX)
        number = next(self._tokens)
        self._subscribed[number] = (subject, queue, receive)
        with self.calling((subject,)) as (call, _):
            try:
                self._subscriptions[number] = await self._listen(subject, queue, receive)
                await self._round_trip()
                if call.done.done():
                    call.done.result()
            except nats_errors.BadSubjectError as error:
                await self.unlisten(number)
                raise BadInput(f"cannot subscribe to {subject[:200]!r}") from error
            except (nats_errors.Error, OSError) as error:
                await self.unlisten(number)
                raise Disconnected(f"cannot subscribe to {subject}: {error}") from error
            except BaseException:
                await self.unlisten(number)
                raise
        return number

    async def unlisten(self, number: int) -> None:
        self._subscribed.pop(number, None)
        subscription = self._subscriptions.pop(number, None)
        if subscription is not None:
            # nats-py cancels this task and never awaits it.
            task: asyncio.Task[None] | None = getattr(subscription, "_wait_for_msgs_task", None)
            with contextlib.suppress(nats_errors.Error, OSError):
                await subscription.unsubscribe()
            if task is not None and task is not asyncio.current_task():
                await asyncio.gather(task, return_exceptions=True)

    async def _listen(self, subject: str, queue: str, receive: Callable[[Msg], None]) -> Subscription:
        async def deliver(message: Msg) -> None:
            receive(message)

        # No byte limit: what comes was asked for, and the asking is bounded.
        return await self._client.subscribe(subject, queue=queue, cb=deliver, pending_bytes_limit=0)

    def report(self, text: str) -> None:
        """Tell whoever made the connection of something that concerns no single call."""
        self._on_error(text)

    def watch(self, waiter: Waiter) -> Callable[[], None]:
        """Let ``waiter`` fail with the connection, as a call does; returns how to end that."""
        token = f"w{next(self._tokens)}"
        self._waiters[token] = waiter
        return lambda: void(self._waiters.pop(token, None))

    def _dispatch(self, message: Msg) -> None:
        waiter = self._waiters.get(message.subject.rpartition(".")[2])
        if waiter is not None:
            waiter.receive(message)

    def _fail_all(self, error: AnchorWatchError) -> None:
        for waiter in list(self._waiters.values()):
            waiter.fail(error)

    # What nats-py reports.

    async def _error(self, error: Exception) -> None:
        text = str(error)
        violation = _VIOLATION.search(text.lower())
        if violation is not None:
            self._denied(violation[1], violation[2])
        elif "authorization violation" in text.lower() and self._refused is not None:
            if not self._refused.done():
                self._refused.set_result("authorization violation")
        elif self.connected and not isinstance(error, (OSError, nats_errors.UnexpectedEOF)):
            # While it is away, each attempt to come back fails anew: `_disconnected` has told it once.
            self._on_error(f"NATS: {text or type(error).__name__}")

    def _denied(self, verb: str, subject: str) -> None:
        doing = "publish" if verb == "publish" else "subscribe"
        error = Denied(f"the credentials do not allow to {doing} to {subject}")
        if verb == "subscription" and subject.startswith(self._inbox.lower()):
            self._subscription_denied = error.message
        struck = [
            waiter
            for waiter in self._waiters.values()
            if any(each.lower() == subject for each in waiter.subjects)
        ]
        for waiter in struck:
            waiter.fail(error)
        if not struck:
            self._on_error(error.message)

    async def _disconnected(self) -> None:
        if self._closing or not self._up.is_set():
            return
        self._up.clear()
        self._on_error("NATS: the connection was lost")
        self._fail_all(Disconnected("the connection to NATS was lost"))

    async def _reconnected(self) -> None:
        if not self._closing:
            self._up.set()
            self._on_error("NATS: the connection is back")

    async def _closed(self) -> None:
        # nats-py gives up for good on errors that may pass (credentials being replaced, too many connections).
        if not self._closing and self._refused is None and self._reopening is None:
            self._on_error(f"NATS: the server ended the connection: {self._client.last_error}")
            self._reopening = asyncio.create_task(self._reopen())

    async def _reopen(self) -> None:
        try:
            while not self._closing:
                await self._close_client(self._client)
                self._client = Client()
                try:
                    await self._connect_client()
                except (nats_errors.Error, OSError):
                    await asyncio.sleep(RECONNECT_PAUSE_S)
                else:
                    self._on_error("NATS: the connection is back")
                    return
        finally:
            self._reopening = None


def void(_: object) -> None:
    """Nothing, of anything."""
