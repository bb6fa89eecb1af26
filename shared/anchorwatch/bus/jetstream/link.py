"""What the parts of the bus do with a connection: calls with an answer, calls with many, and listening.

All answers come to one inbox that lives as long as the link. A call that is waiting fails at once, not after its timeout,
when the connection is lost (`Disconnected`) or the server denies its subject (`Denied`).
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
from anchorwatch.bus.jetstream.client import LOST, PlainClient, subscription_task
from anchorwatch.bus.jetstream.connection import Connection, OnError
from anchorwatch.bus.jetstream.wire import write_headers
from anchorwatch.bus.port import Disconnected
from anchorwatch.core.errors import BadInput, Denied, TooLarge

STATUS_HEADER = "Status"
NO_RESPONDERS = "503"
LISTEN_TIMEOUT_S = 5.0

Receive = Callable[[Msg], None]


class Link:
    """A connection as the bus uses it."""

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
            listen=self._listen_anew,
            on_denied=self._denied,
            on_lost=self._lost,
            on_error=on_error,
        )
        self.report = on_error
        """Tell whoever made the connection of something that concerns no single call."""

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
                hint="answers come there: allow it, or give the prefix that is allowed",
            )

    async def close(self) -> None:
        self._waiters.fail_all(Disconnected("the bus was closed"))
        await self._connection.close()

    @property
    def connected(self) -> bool:
        return self._connection.connected

    @property
    def connections(self) -> int:
        """How often it was connected so far."""
        return self._connection.times

    @property
    def closed(self) -> bool:
        return self._connection.closing

    async def wait_up(self, timeout_s: float) -> bool:
        """Wait for the connection; False when it is not there after ``timeout_s``, or was closed."""
        return await self._connection.wait_up(timeout_s)

    async def ready(self, subject: str, timeout_s: float) -> None:
        """Wait for the connection.

        Raises:
            Disconnected: it is not there after ``timeout_s``.
        """
        if not self.connected and not await self.wait_up(timeout_s):
            raise Disconnected(f"no connection to NATS for {subject}")

    # Sending.

    async def send(
        self, subject: str, payload: bytes, reply: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Hand a message to the connection as it is now; no answer is awaited.

        Raises:
            Disconnected, TooLarge, BadInput: it cannot be sent.
        """
        client = self._connection.client
        try:
            lines = write_headers(headers) if headers else b""
            size = len(payload) + len(lines)
            if size > client.max_payload:
                # The server would not answer, but end the connection.
                raise TooLarge(f"{size} bytes for {subject}: the server takes {client.max_payload}")
            if not client.send_soon(subject, payload, reply, lines):
                await client.publish(subject, payload, reply, dict(headers) if headers else None)
        except (nats_errors.BadSubjectError, nats_errors.BadHeaderError) as error:
            raise BadInput(f"cannot publish to {subject[:200]!r}: {error}") from error
        except LOST as error:
            raise Disconnected(f"cannot publish to {subject}: {error}") from error

    async def round_trip(self) -> None:
        """Hear what the server has to say of all that was sent before.

        Raises:
            Disconnected: the connection went away.
        """
        try:
            await self._connection.round_trip()
        except LOST as error:
            raise Disconnected(f"the connection to NATS was lost: {error}") from error

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
            await self.ready(subject, timeout_s)
            await self.send(subject, payload, reply, headers)
            await call.settle(timeout_s)
            return call.messages[0]

    async def call_many(
        self, subject: str, payload: bytes, timeout_s: float, complete: Callable[[Msg], bool]
    ) -> list[Msg]:
        """Send, and give back all answers up to the one of which ``complete`` says that it is the last."""
        with self.calling((subject,), complete) as (call, reply):
            await self.ready(subject, timeout_s)
            await self.send(subject, payload, reply)
            await call.settle(timeout_s)
            return call.messages

    @contextlib.contextmanager
    def calling(
        self, subjects: Sequence[str], complete: Callable[[Msg], bool] | None = None
    ) -> Iterator[tuple[Call, str]]:
        """A call for the length of a ``with`` block, and the inbox for its answers."""
        with self._waiters.calling(subjects, complete) as (call, token):
            yield call, f"{self._inbox}.{token}"

    # Listening.

    def new_inbox(self) -> str:
        """A subject of this link for messages of many kinds."""
        return f"{self._inbox}.c.{self._waiters.token()}"

    def watch(self, waiter: Waiter) -> Callable[[], None]:
        """Let ``waiter`` fail with the connection, as a call does; returns how to end that."""
        token = self._waiters.add(waiter)
        return lambda: self._waiters.remove(token)

    async def listen(self, subject: str, receive: Receive, queue: str = "") -> str:
        """Call ``receive`` for each message, across reconnects, until `unlisten` of what is returned.

        Raises:
            Denied: the credentials do not allow the subject.
            Disconnected: the connection is away.
        """
        await self.ready(subject, LISTEN_TIMEOUT_S)
        token = self._waiters.token()
        self._listeners[token] = (subject, queue, receive)
        listening = False
        try:
            with self.calling((subject,)) as (call, _):
                self._subscriptions[token] = await self._subscribe(
                    self._connection.client, subject, queue, receive
                )
                await self._connection.round_trip()
                call.raise_failure()
                listening = True
        except nats_errors.BadSubjectError as error:
            raise BadInput(f"cannot subscribe to {subject[:200]!r}") from error
        except LOST as error:
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

    async def _listen_anew(self, client: PlainClient) -> None:
        await self._subscribe(client, f"{self._inbox}.*", "", self._waiters.dispatch)
        for token, (subject, queue, receive) in list(self._listeners.items()):
            self._subscriptions[token] = await self._subscribe(client, subject, queue, receive)

    def _lost(self) -> None:
        self._waiters.fail_all(Disconnected("the connection to NATS was lost"))

    def _denied(self, verb: str, subject: str) -> None:
        def denied(exact: str) -> Denied:
            doing = "publish" if verb == "publish" else "subscribe"
            return Denied(f"the credentials do not allow to {doing} to {exact}")

        if subject == f"{self._inbox}.*".lower():
            self._inbox_denied = True
        if not self._waiters.fail_subject(subject, denied):
            self.report(denied(subject).message)

    async def _subscribe(
        self, client: PlainClient, subject: str, queue: str, receive: Receive
    ) -> Subscription:
        async def deliver(message: Msg) -> None:
            receive(message)

        # No byte limit: what comes was asked for, and the asking is bounded.
        subscription = await client.subscribe(subject, queue=queue, cb=deliver, pending_bytes_limit=0)
        client.receive_directly(subscription, receive, lambda error: self.report(f"NATS: {error}"))
        return subscription
