"""The operations on a connection: send, call, and subscribe.

All answers come to one inbox that lives as long as the link. A waiting call fails at once, not after its timeout, when
the connection is lost (`Disconnected`) or the server denies its subject (`Denied`).
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence

from nats import errors as nats_errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from anchorwatch.bus.jetstream.calls import Call, Waiter, Waiters
from anchorwatch.bus.jetstream.client import LOST_CONNECTION, PlainClient, subscription_task
from anchorwatch.bus.jetstream.connection import Connection, OnError
from anchorwatch.bus.jetstream.wire import write_headers
from anchorwatch.bus.port import Disconnected
from anchorwatch.core.errors import BadInput, Denied, TooLarge

STATUS_HEADER = "Status"
NO_RESPONDERS = "503"
LISTEN_TIMEOUT_S = 5.0

Receive = Callable[[Msg], None]


class Link:
    """The connection, for the parts of the bus."""

    def __init__(
        self,
        servers: Sequence[str],
        options: Mapping[str, object],
        inbox: str,
        on_error: OnError,
        *,
        plain: bool,
    ) -> None:
        self._inbox = f"{inbox}.{secrets.token_hex(8)}"
        self._waiters = Waiters()
        self._listeners: dict[str, tuple[str, str, Receive]] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._inbox_denied = False
        self._connection = Connection(
            servers,
            options,
            plain=plain,
            listen=self._resubscribe,
            on_denied=self._denied,
            on_lost=self._lost,
            on_error=on_error,
        )
        self.report = on_error
        """Report an error that belongs to no call."""

    async def open(self, timeout_s: float) -> None:
        """Connect.

        Raises:
            Denied: the server refuses the credentials, or the inbox.
            Unavailable: no server answers within ``timeout_s``.
        """
        await self._connection.open(timeout_s)
        if self._inbox_denied:
            await self.close()
            raise Denied(
                f"the credentials do not allow to subscribe to {self._inbox}.*",
                hint="answers come to this subject: allow it, or set the allowed prefix",
            )

    async def close(self) -> None:
        self._waiters.fail_all(Disconnected("the bus was closed"))
        await self._connection.close()

    @property
    def connected(self) -> bool:
        return self._connection.connected

    @property
    def connections(self) -> int:
        """How often it has connected so far."""
        return self._connection.times

    @property
    def closed(self) -> bool:
        return self._connection.closing

    async def wait_connected(self, timeout_s: float) -> bool:
        """Wait for the connection; False if there is none after ``timeout_s``, or it was closed."""
        return await self._connection.wait_connected(timeout_s)

    async def ready(self, subject: str, timeout_s: float) -> None:
        """Wait for the connection.

        Raises:
            Disconnected: there is none after ``timeout_s``.
        """
        if not self.connected and not await self.wait_connected(timeout_s):
            raise Disconnected(f"no connection to NATS for {subject}")

    # Sending.

    async def send(
        self, subject: str, payload: bytes, reply: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a message without waiting for a connection or an answer.

        Raises:
            Disconnected, TooLarge, BadInput: the message cannot be sent.
        """
        client = self._connection.client
        try:
            lines = write_headers(headers) if headers else b""
            size = len(payload) + len(lines)
            if size > client.max_payload:
                # The server would close the connection instead of answering.
                raise TooLarge(f"{size} bytes for {subject}: the server accepts {client.max_payload}")
            if not client.send_soon(subject, payload, reply, lines):
                await client.publish(subject, payload, reply, dict(headers) if headers else None)
        except (nats_errors.BadSubjectError, nats_errors.BadHeaderError) as error:
            raise BadInput(f"cannot publish to {subject[:200]!r}: {error}") from error
        except LOST_CONNECTION as error:
            raise Disconnected(f"cannot publish to {subject}: {error}") from error

    async def round_trip(self) -> None:
        """Return after the server has processed everything sent before.

        Raises:
            Disconnected: the connection was lost.
        """
        try:
            await self._connection.round_trip()
        except LOST_CONNECTION as error:
            raise Disconnected(f"the connection to NATS was lost: {error}") from error

    async def call(
        self,
        subject: str,
        payload: bytes = b"",
        timeout_s: float = 5.0,
        headers: Mapping[str, str] | None = None,
    ) -> Msg:
        """Send a message, and return the answer, which may be status 503: the subject has no subscriber.

        Raises:
            Unavailable: no answer within ``timeout_s``.
            Disconnected: there is no connection, or it was lost.
            Denied: the credentials do not allow the subject.
        """
        with self.open_call((subject,)) as (call, reply):
            await self.ready(subject, timeout_s)
            await self.send(subject, payload, reply, headers)
            await call.settle(timeout_s)
            return call.messages[0]

    async def call_many(
        self, subject: str, payload: bytes, timeout_s: float, complete: Callable[[Msg], bool]
    ) -> list[Msg]:
        """Send a message, and return all answers up to the one for which ``complete`` is true."""
        with self.open_call((subject,), complete) as (call, reply):
            await self.ready(subject, timeout_s)
            await self.send(subject, payload, reply)
            await call.settle(timeout_s)
            return call.messages

    @contextlib.contextmanager
    def open_call(
        self, subjects: Sequence[str], complete: Callable[[Msg], bool] | None = None
    ) -> Iterator[tuple[Call, str]]:
        """A call and its reply subject, pending for the length of a ``with`` block."""
        with self._waiters.open_call(subjects, complete) as (call, token):
            yield call, f"{self._inbox}.{token}"

    # Subscriptions.

    def new_inbox(self) -> str:
        """A new subject of this link, below its inbox."""
        return f"{self._inbox}.c.{self._waiters.token()}"

    def watch(self, waiter: Waiter) -> Callable[[], None]:
        """Let ``waiter`` fail with the connection, as a call does; call the result to end that."""
        token = self._waiters.add(waiter)
        return lambda: self._waiters.remove(token)

    async def listen(self, subject: str, receive: Receive, queue: str = "") -> str:
        """Call ``receive`` for each message, across reconnects, until `unlisten` of the returned token.

        Raises:
            Denied: the credentials do not allow the subject.
            Disconnected: there is no connection.
        """
        await self.ready(subject, LISTEN_TIMEOUT_S)
        token = self._waiters.token()
        self._listeners[token] = (subject, queue, receive)
        listening = False
        try:
            with self.open_call((subject,)) as (call, _):
                self._subscriptions[token] = await self._subscribe(
                    self._connection.client, subject, queue, receive
                )
                await self._connection.round_trip()
                call.raise_failure()
                listening = True
        except nats_errors.BadSubjectError as error:
            raise BadInput(f"cannot subscribe to {subject[:200]!r}") from error
        except LOST_CONNECTION as error:
            raise Disconnected(f"cannot subscribe to {subject}: {error}") from error
        finally:
            if not listening:
                await self.unlisten(token)
        return token

    async def unlisten(self, token: str) -> None:
        self._listeners.pop(token, None)
        subscription = self._subscriptions.pop(token, None)
        if subscription is not None:
            # nats-py cancels this task and never awaits it.
            task = subscription_task(subscription)
            with contextlib.suppress(nats_errors.Error, OSError):
                await subscription.unsubscribe()
            if task is not None and task is not asyncio.current_task():
                await asyncio.gather(task, return_exceptions=True)

    async def _resubscribe(self, client: PlainClient) -> None:
        await self._subscribe(client, f"{self._inbox}.*", "", self._waiters.dispatch)
        for token, (subject, queue, receive) in list(self._listeners.items()):
            self._subscriptions[token] = await self._subscribe(client, subject, queue, receive)

    def _lost(self) -> None:
        self._waiters.fail_all(Disconnected("the connection to NATS was lost"))

    def _denied(self, verb: str, subject: str) -> None:
        def denied(exact: str) -> Denied:
            action = "publish" if verb == "publish" else "subscribe"
            return Denied(f"the credentials do not allow to {action} to {exact}")

        if subject == f"{self._inbox}.*".lower():
            self._inbox_denied = True
        if not self._waiters.fail_subject(subject, denied):
            self.report(denied(subject).message)

    async def _subscribe(
        self, client: PlainClient, subject: str, queue: str, receive: Receive
    ) -> Subscription:
        async def deliver(message: Msg) -> None:
            receive(message)

        # No byte limit: every message answers a request, and the number of requests is bounded.
        subscription = await client.subscribe(subject, queue=queue, cb=deliver, pending_bytes_limit=0)
        client.receive_directly(subscription, receive, lambda error: self.report(f"NATS: {error}"))
        return subscription
