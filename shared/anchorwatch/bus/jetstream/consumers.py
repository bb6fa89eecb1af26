"""Pull consumers: made or compared, and fetched from.

A fetch is one request to the server, ``no_wait`` with ``expires``. The server sends the available messages at once, or
else the first one that arrives, and ends the request. So no request stays open after a fetch, and a process that does
not fetch receives nothing. There is one exception: when the limit of unacked messages shortens an answer, the request
stays open, and its later messages go to the next fetch. All messages of a consumer come to one inbox that outlives
reconnects.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import secrets
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nats.aio.msg import Msg

from anchorwatch.bus.jetstream.api import CALL_TIMEOUT_S, NANOSECONDS, NameTaken, api, rfc3339
from anchorwatch.bus.jetstream.link import NO_RESPONDERS, STATUS_HEADER, Link
from anchorwatch.bus.port import ConsumerSpec, ConsumerState, Delivery, Disconnected, Stored, StreamMissing
from anchorwatch.core.errors import AnchorWatchError, BadInput, ConfigDiffers, NotFound, Unavailable

# The longest wait of one request: then a request that was lost with the consumer's leader is repeated.
PULL_S_MAX = 2.0
# How long after its expiry the end of a request may arrive.
PULL_GRACE_S = 0.5
PAUSE_S = 0.25
# The longest gap between two messages of one answer.
ANSWER_GAP_S_MAX = 0.01
EPHEMERAL_IDLE_S_MAX = 60.0
KEYS_A_FETCH = 1000

_CONSUMER_GONE = "409"
_NO_MESSAGES = ("404", "408 Requests Pending")
_ACK, _NAK, _PROGRESS = b"+ACK", b"-NAK", b"+WPI"


@dataclass(frozen=True, slots=True)
class JetStreamDelivery:
    """A message of a consumer, with its acks."""

    stored: Stored
    attempt: int
    _reply: str
    _link: Link

    async def ack(self) -> None:
        await self._send(_ACK)

    async def nak(self, delay_s: float = 0) -> None:
        delay = f' {{"delay": {int(delay_s * NANOSECONDS)}}}' if delay_s > 0 else ""
        await self._send(_NAK + delay.encode())

    async def in_progress(self) -> None:
        await self._send(_PROGRESS)

    async def _send(self, ack: bytes) -> None:
        # A lost ack causes a redelivery, which every consumer tolerates.
        with contextlib.suppress(AnchorWatchError):
            await self._link.send(self._reply, ack)


class JetStreamConsumer:
    """The client's side of a consumer: one inbox, one fetch at a time."""

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
        self._messages: deque[Delivery] = deque()
        self._end_status = ""
        self._failure: AnchorWatchError | None = None
        self._changed = asyncio.Event()
        self._unwatch = link.watch(self)
        self._fetching = asyncio.Lock()
        self._closed = False

    # Called by the link.

    @property
    def subjects(self) -> tuple[str, ...]:
        return (self._next_subject,)

    def receive(self, message: Msg) -> None:
        headers: Mapping[str, str] = message.headers or {}
        # A message with a reply subject needs an ack, even if its publisher has set a status header.
        status = None if message.data or message.reply else headers.get(STATUS_HEADER)
        if status is None:
            self._messages.append(_delivery(message, self._link))
        elif message.subject == self._reply:
            # The end of an earlier request is ignored.
            self._end_status = f"{status} {headers.get('Description', '')}"
        self._changed.set()

    def fail(self, error: AnchorWatchError) -> None:
        self._failure = error
        self._changed.set()

    async def open(self) -> None:
        self._subscription = await self._link.listen(f"{self._inbox}.*", self.receive)

    # Called by the user.

    async def fetch(self, limit: int, timeout_s: float) -> list[Delivery]:
        if limit < 1:
            raise BadInput(f"cannot fetch {limit} messages")
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout_s
        async with self._fetching:
            queue_up = False
            while not self._messages:
                left_s = max(deadline - clock(), 0.0)
                if self._closed or self._link.closed:
                    raise Disconnected(f"consumer {self._name} of {self._stream} was closed here")
                if not self._link.connected and not await self._link.wait_connected(min(left_s, PAUSE_S)):
                    return []
                await self._pull(limit, min(left_s, PULL_S_MAX), queue_up=queue_up)
                # The server answered "no messages" instead of waiting: an earlier open request is served first.
                queue_up = self._end_status.startswith(_NO_MESSAGES)
                if clock() >= deadline:
                    break
            return [self._messages.popleft() for _ in range(min(limit, len(self._messages)))]

    async def state(self) -> ConsumerState:
        return state_of(await consumer_info(self._link, self._stream, self._name))

    async def close(self) -> None:
        self._closed = True
        self._unwatch()
        # Wakes a waiting fetch.
        self.fail(Disconnected("the consumer was closed"))
        if self._subscription is not None:
            await self._link.unlisten(self._subscription)
            self._subscription = None
        while self._messages:
            await self._messages.popleft().nak()
        if self._ephemeral and self._link.connected:
            with contextlib.suppress(AnchorWatchError):
                await self._link.call(
                    f"$JS.API.CONSUMER.DELETE.{self._stream}.{self._name}", b"", CALL_TIMEOUT_S
                )

    async def _pull(self, limit: int, wait_s: float, *, queue_up: bool) -> None:
        """Send one request, and wait for its end or the loss of the connection.

        ``queue_up``: wait for one message after the requests that are open.

        Raises:
            NotFound: the consumer does not exist.
            Denied: the credentials do not allow the request.
        """
        self._end_status, self._failure = "", None
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
        await self._wait_for(1, wait_s + PULL_GRACE_S)
        if self._messages:
            await self._wait_for(limit, ANSWER_GAP_S_MAX)
        elif not self._end_status and self._failure is None:
            # The server lost the request: its consumer moved to another leader, or was deleted.
            await self._check_exists()
        self._raise_failure()
        if not self._messages and self._end_status.startswith((NO_RESPONDERS, _CONSUMER_GONE)):
            await self._check_exists()
            await asyncio.sleep(PAUSE_S)

    async def _wait_for(self, wanted: int, timeout_s: float) -> None:
        """Wait for ``wanted`` messages, for the end or failure of the request, or for the timeout."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while len(self._messages) < wanted and not self._end_status and self._failure is None:
                    self._changed.clear()
                    await self._changed.wait()

    def _raise_failure(self) -> None:
        # A fetch does not fail with the connection: it returns early.
        if self._failure is not None and not isinstance(self._failure, Disconnected):
            raise self._failure

    async def _check_exists(self) -> None:
        try:
            await consumer_info(self._link, self._stream, self._name)
        except Unavailable:
            # Not known yet: the next fetch shows it.
            return


class Consumers:
    """Makes, changes and lists consumers over one connection."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def consumer(self, spec: ConsumerSpec) -> JetStreamConsumer:
        name = spec.durable or f"e{secrets.token_hex(8)}"
        if spec.durable is None or not await self._attach(spec):
            await self._create(spec, name)
        consumer = JetStreamConsumer(self._link, spec.stream, name, ephemeral=spec.durable is None)
        try:
            await consumer.open()
        except BaseException:
            await consumer.close()
            raise
        return consumer

    async def last_headers(self, stream: str, filter_: str) -> list[Stored]:
        """The last message of each matching subject, without payload; there is no limit on their number."""
        name = f"k{secrets.token_hex(8)}"
        config = {
            "name": name,
            "ack_policy": "none",
            "deliver_policy": "last_per_subject",
            "filter_subject": filter_,
            "headers_only": True,
            "replay_policy": "instant",
            "inactive_threshold": int(PULL_S_MAX * NANOSECONDS),
            "mem_storage": True,
            "num_replicas": 1,
        }
        request = {"stream_name": stream, "config": config, "action": "create"}
        created = await api(
            self._link, f"CONSUMER.CREATE.{stream}.{name}.{filter_}", request, f"keys of {stream}"
        )
        found: list[Stored] = []
        consumer = JetStreamConsumer(self._link, stream, name, ephemeral=True)
        try:
            await consumer.open()
            while len(found) < created["num_pending"]:
                deliveries = await consumer.fetch(KEYS_A_FETCH, CALL_TIMEOUT_S)
                if not deliveries:
                    raise Unavailable(f"keys of {stream}: {len(found)} of {created['num_pending']} arrived")
                found += [delivery.stored for delivery in deliveries]
        finally:
            await consumer.close()
        return found

    async def delete(self, stream: str, durable: str) -> None:
        await api(
            self._link, f"CONSUMER.DELETE.{stream}.{durable}", None, f"delete consumer {durable} of {stream}"
        )

    async def states(self, stream: str) -> dict[str, ConsumerState]:
        """The state of each durable consumer. The server lists some hundred at a time."""
        found: dict[str, ConsumerState] = {}
        offset = 0
        while True:
            page = await api(
                self._link, f"CONSUMER.LIST.{stream}", {"offset": offset}, f"consumers of {stream}"
            )
            rows = page.get("consumers") or []
            found |= {row["name"]: state_of(row) for row in rows if row["config"].get("durable_name")}
            offset += len(rows)
            if not rows or offset >= page["total"]:
                return found

    async def _attach(self, spec: ConsumerSpec) -> bool:
        """Whether the durable consumer exists; it is compared with ``spec``."""
        try:
            info = await consumer_info(self._link, spec.stream, str(spec.durable))
        except StreamMissing:
            raise
        except NotFound:
            return False
        found = info["config"]
        if spec.filters_before and set(_filters(found)) == set(spec.filters_before):
            found = await self._update_filters(spec, found)
        _compare(spec, found)
        return True

    async def _update_filters(self, spec: ConsumerSpec, found: Mapping[str, Any]) -> dict[str, Any]:
        config = {key: value for key, value in found.items() if not key.startswith("filter_subject")}
        config |= _filter_fields(spec)
        subject = f"CONSUMER.CREATE.{spec.stream}.{spec.durable}"
        if len(spec.filters) == 1:
            subject += f".{spec.filters[0]}"
        request = {"stream_name": spec.stream, "config": config, "action": "update"}
        answer = await api(self._link, subject, request, f"filters of consumer {spec.durable}")
        return dict(answer["config"])

    async def _create(self, spec: ConsumerSpec, name: str) -> None:
        request = {"stream_name": spec.stream, "config": _config(spec, name), "action": "create"}
        subject = f"CONSUMER.CREATE.{spec.stream}.{name}"
        if len(spec.filters) == 1:
            # With the filter in the subject, permissions can limit what a user reads.
            subject += f".{spec.filters[0]}"
        try:
            await api(self._link, subject, request, f"consumer {name} of {spec.stream}")
        except NameTaken as taken:
            if spec.durable is None or not await self._attach(spec):
                raise Unavailable(
                    f"consumer {name} of {spec.stream} is being made by another client: {taken}"
                ) from taken


def _config(spec: ConsumerSpec, name: str) -> dict[str, Any]:
    config: dict[str, Any] = {
        "name": name,
        "ack_policy": "explicit",
        "ack_wait": int(spec.ack_wait_s * NANOSECONDS),
        "max_ack_pending": spec.ack_pending_max,
        "replay_policy": "instant",
        "deliver_policy": "all",
    }
    config |= _filter_fields(spec)
    if spec.durable is None:
        config["inactive_threshold"] = int(EPHEMERAL_IDLE_S_MAX * NANOSECONDS)
    else:
        config["durable_name"] = name
    if spec.start_sequence is not None:
        config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": max(spec.start_sequence, 1)}
    elif spec.start_time_ms is not None:
        config |= {"deliver_policy": "by_start_time", "opt_start_time": rfc3339(spec.start_time_ms)}
    return config


def _filter_fields(spec: ConsumerSpec) -> dict[str, Any]:
    if len(spec.filters) == 1:
        return {"filter_subject": spec.filters[0]}
    return {"filter_subjects": list(spec.filters)} if spec.filters else {}


def _filters(config: Mapping[str, Any]) -> list[str]:
    return config.get("filter_subjects") or [each for each in [config.get("filter_subject")] if each]


def _compare(spec: ConsumerSpec, found: Mapping[str, Any]) -> None:
    """Compare an existing consumer with ``spec``.

    Raises:
        ConfigDiffers: they differ; the message names each difference.
    """
    filters = _filters(found)
    ack_wait_s = found.get("ack_wait", 0) / NANOSECONDS
    differences = []
    if set(filters) != set(spec.filters):
        differences.append(f"filters {_list(spec.filters)} wanted, {_list(filters)} found")
    if ack_wait_s != spec.ack_wait_s:
        differences.append(f"ack_wait {spec.ack_wait_s:g} s wanted, {ack_wait_s:g} s found")
    if found.get("ack_policy") != "explicit":
        differences.append(f"ack_policy explicit wanted, {found.get('ack_policy')} found")
    if differences:
        raise ConfigDiffers(
            f"consumer {spec.durable} of {spec.stream}: {'; '.join(differences)}",
            hint="delete the consumer, and it is made again; its position in the stream is lost",
        )


def _list(filters: object) -> str:
    return ", ".join(sorted(map(str, filters))) if isinstance(filters, (list, tuple)) and filters else "none"


async def consumer_info(link: Link, stream: str, name: str) -> dict[str, Any]:
    """The server's description of a consumer."""
    return await api(link, f"CONSUMER.INFO.{stream}.{name}", None, f"consumer {name} of {stream}")


def state_of(info: Mapping[str, Any]) -> ConsumerState:
    """The state in a server's description of a consumer."""
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
