"""Pull consumers.

A fetch is one request to the server, ``no_wait`` with ``expires``: what is there comes at once, or else the first message
that comes; then the server ends the request. So no request is left open behind a fetch, and nothing is delivered to a
process that is not asking. (One case apart: when the bound on unacked messages cuts an answer short, the request stays open,
and what it brings later goes to the next fetch.) All of a consumer's messages come to one inbox that outlives reconnects.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nats.aio.msg import Msg

from anchorwatch.bus.jetstream.api import CALL_TIMEOUT_S, NANOSECONDS, api
from anchorwatch.bus.jetstream.link import NO_RESPONDERS, STATUS_HEADER, Link
from anchorwatch.bus.port import ConsumerState, Delivery, Disconnected, Stored
from anchorwatch.core.errors import AnchorWatchError, BadInput, Unavailable

# One request to the server waits at most so long. A request that was lost with the consumer's leader is thereby asked again.
PULL_S_MAX = 2.0
# How much later than its end a request's last word may come.
PULL_GRACE_S = 0.5
PAUSE_S = 0.25
# What belongs to one answer follows each other closer than this.
REST_S_MAX = 0.01

_GONE = "409"
_NOTHING_FOR_YOU = ("404", "408 Requests Pending")
_ACK, _NAK, _PROGRESS = b"+ACK", b"-NAK", b"+WPI"


@dataclass(frozen=True, slots=True)
class JetStreamDelivery:
    """A message handed to a consumer."""

    stored: Stored
    attempt: int
    _reply: str
    _link: Link

    async def ack(self) -> None:
        await self._answer(_ACK)

    async def nak(self, delay_s: float = 0) -> None:
        delay = f' {{"delay": {int(delay_s * NANOSECONDS)}}}' if delay_s > 0 else ""
        await self._answer(_NAK + delay.encode())

    async def in_progress(self) -> None:
        await self._answer(_PROGRESS)

    async def _answer(self, word: bytes) -> None:
        # A lost answer is a redelivery, which every consumer stands anyway.
        with contextlib.suppress(AnchorWatchError):
            await self._link.send(self._reply, word)


class JetStreamConsumer:
    """A consumer on the server, and its one inbox here. One fetch at a time."""

    def __init__(self, link: Link, stream: str, name: str, *, ephemeral: bool) -> None:
        self._link = link
        self._stream = stream
        self._name = name
        self._ephemeral = ephemeral
        self._next_subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"
        self._inbox = link.new_inbox()
        self._subscription: str | None = None
        self._pulls = itertools.count(1)
        self._reply = ""
        self._arrived: deque[Delivery] = deque()
        self._ended = ""
        self._failure: AnchorWatchError | None = None
        self._news = asyncio.Event()
        self._unwatch = link.watch(self)
        self._fetching = asyncio.Lock()
        self._closed = False

    # The link's side.

    @property
    def subjects(self) -> tuple[str, ...]:
        return (self._next_subject,)

    def receive(self, message: Msg) -> None:
        headers: Mapping[str, str] = message.headers or {}
        # What is to be acked is a message, whatever its publisher has written into it.
        status = None if message.data or message.reply else headers.get(STATUS_HEADER)
        if status is None:
            self._arrived.append(_delivery(message, self._link))
        elif message.subject == self._reply:
            # The last word on an earlier request is of no interest.
            self._ended = f"{status} {headers.get('Description', '')}"
        self._news.set()

    def fail(self, error: AnchorWatchError) -> None:
        self._failure = error
        self._news.set()

    async def open(self) -> None:
        self._subscription = await self._link.listen(f"{self._inbox}.*", self.receive)

    # The caller's side.

    async def fetch(self, limit: int, timeout_s: float) -> list[Delivery]:
        if limit < 1:
            raise BadInput(f"cannot fetch {limit} messages")
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout_s
        async with self._fetching:
            queue_up = False
            while not self._arrived:
                left_s = max(deadline - clock(), 0.0)
                if self._closed or self._link.closed:
                    raise Disconnected(f"consumer {self._name} of {self._stream} was closed here")
                if not self._link.connected and not await self._link.wait_up(min(left_s, PAUSE_S)):
                    return []
                await self._pull(limit, min(left_s, PULL_S_MAX), queue_up=queue_up)
                # Told that there is nothing, in place of being kept waiting: an open request of before has the first claim.
                queue_up = self._ended.startswith(_NOTHING_FOR_YOU)
                if clock() >= deadline:
                    break
            return [self._arrived.popleft() for _ in range(min(limit, len(self._arrived)))]

    async def state(self) -> ConsumerState:
        return state_of(await consumer_info(self._link, self._stream, self._name))

    async def close(self) -> None:
        self._closed = True
        self._unwatch()
        # Wakes a fetch that still waits.
        self.fail(Disconnected("the consumer was closed"))
        if self._subscription is not None:
            await self._link.unlisten(self._subscription)
            self._subscription = None
        while self._arrived:
            await self._arrived.popleft().nak()
        if self._ephemeral and self._link.connected:
            with contextlib.suppress(AnchorWatchError):
                await self._link.call(
                    f"$JS.API.CONSUMER.DELETE.{self._stream}.{self._name}", b"", CALL_TIMEOUT_S
                )

    async def _pull(self, limit: int, wait_s: float, *, queue_up: bool) -> None:
        """Ask the server once, and wait until it has said its last word, or the connection is gone.

        ``queue_up``: wait for one message behind the requests that are open.

        Raises:
            NotFound: there is no such consumer.
            Denied: the credentials do not allow to ask.
        """
        self._ended, self._failure = "", None
        self._reply = f"{self._inbox}.{next(self._pulls)}"
        request: dict[str, object] = {"batch": limit, "no_wait": True}
        if queue_up and wait_s > 0:
            request = {"batch": 1}
        if wait_s > 0:
            request["expires"] = max(int(wait_s * NANOSECONDS), 1_000_000)
        try:
            await self._link.send(self._next_subject, json.dumps(request).encode(), self._reply)
        except Disconnected:
            await asyncio.sleep(PAUSE_S)
            return
        await self._await_news(1, wait_s + PULL_GRACE_S)
        if self._arrived:
            await self._await_news(limit, REST_S_MAX)
        elif not self._ended and self._failure is None:
            # The server lost the request. Either its consumer moved to another leader, or it is no more.
            await self._check_exists()
        self._raise_failure()
        if not self._arrived and self._ended.startswith((NO_RESPONDERS, _GONE)):
            await self._check_exists()
            await asyncio.sleep(PAUSE_S)

    async def _await_news(self, wanted: int, timeout_s: float) -> None:
        """Wait until ``wanted`` messages are there, the request has ended or failed, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while len(self._arrived) < wanted and not self._ended and self._failure is None:
                    self._news.clear()
                    await self._news.wait()

    def _raise_failure(self) -> None:
        # A lost connection is no failure of a fetch: it just ends early.
        if self._failure is not None and not isinstance(self._failure, Disconnected):
            raise self._failure

    async def _check_exists(self) -> None:
        try:
            await consumer_info(self._link, self._stream, self._name)
        except Unavailable:
            # Unknown, and the next fetch will tell.
            return


async def consumer_info(link: Link, stream: str, name: str) -> dict[str, Any]:
    """What the server says of a consumer."""
    return await api(link, f"CONSUMER.INFO.{stream}.{name}", None, f"consumer {name} of {stream}")


def state_of(info: Mapping[str, Any]) -> ConsumerState:
    """How far a consumer is, from what the server says of it."""
    return ConsumerState(
        delivered_sequence=info["delivered"]["stream_seq"],
        ack_floor_sequence=info["ack_floor"]["stream_seq"],
        ack_pending=info["num_ack_pending"],
        pending=info["num_pending"],
    )


def _delivery(message: Msg, link: Link) -> JetStreamDelivery:
    # $JS.ACK.<stream>.<consumer>.<attempt>.<sequence>.<consumer sequence>.<time>.<pending>, or the same with domain and
    # account after $JS.ACK and a random token at the end.
    tokens = message.reply.split(".")
    at = 4 if len(tokens) < 11 else 6  # noqa: PLR2004
    stored = Stored(
        subject=message.subject,
        sequence=int(tokens[at + 1]),
        time_ms=int(tokens[at + 3]) // 1_000_000,
        payload=message.data,
        headers=message.headers or {},
    )
    return JetStreamDelivery(stored, int(tokens[at]), message.reply, link)
