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
import secrets
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nats.aio.msg import Msg

from anchorwatch.bus.jetstream import failures
from anchorwatch.bus.jetstream.link import NO_RESPONDERS, STATUS_HEADER, Link
from anchorwatch.bus.jetstream.publishing import is_unanswered
from anchorwatch.bus.jetstream.times import rfc3339
from anchorwatch.bus.port import ConsumerSpec, ConsumerState, Delivery, Disconnected, Stored, StreamMissing
from anchorwatch.core.errors import AnchorWatchError, BadInput, ConfigDiffers, NotFound, Unavailable

# One request to the server waits at most so long. A request that was lost with the consumer's leader is thereby asked again.
PULL_S_MAX = 5.0
# How much later than its end a request's last word may come.
PULL_GRACE_S = 0.5
PAUSE_S = 0.25
# What belongs to one answer follows each other closer than this.
REST_S_MAX = 0.01
EPHEMERAL_IDLE_S_MAX = 60.0
CALL_TIMEOUT_S = 5.0
KEYS_A_FETCH = 1000
NANOSECONDS = 1_000_000_000

_GONE = "409"
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
        self._subscription: int | None = None
        self._pulls = itertools.count(1)
        self._reply = ""
        self._arrived: deque[Delivery] = deque()
        self._ended = ""
        self._failure: AnchorWatchError | None = None
        self._news = asyncio.Event()
        self._unwatch = link.watch(self)
        self._fetching = asyncio.Lock()

    # The link's side.

    @property
    def subjects(self) -> tuple[str, ...]:
        return (self._next_subject,)

    def receive(self, message: Msg) -> None:
        headers: Mapping[str, str] = message.headers or {}
        status = None if message.data else headers.get(STATUS_HEADER)
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
        deadline = asyncio.get_running_loop().time() + timeout_s
        async with self._fetching:
            while not self._arrived:
                left_s = deadline - asyncio.get_running_loop().time()
                if not self._link.connected and not await self._link.wait_up(min(max(left_s, 0.0), PAUSE_S)):
                    return []
                await self._pull(limit, min(max(left_s, 0.0), PULL_S_MAX))
                if self._arrived or asyncio.get_running_loop().time() >= deadline:
                    break
            return [self._arrived.popleft() for _ in range(min(limit, len(self._arrived)))]

    async def state(self) -> ConsumerState:
        return _state(await consumer_info(self._link, self._stream, self._name))

    async def close(self) -> None:
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

    async def _pull(self, limit: int, wait_s: float) -> None:
        """Ask the server once, and wait until it has said its last word, or the connection is gone.

        Raises:
            NotFound: there is no such consumer.
            Denied: the credentials do not allow to ask.
        """
        self._ended, self._failure = "", None
        self._reply = f"{self._inbox}.{next(self._pulls)}"
        request: dict[str, object] = {"batch": limit, "no_wait": True}
        if wait_s > 0:
            request["expires"] = max(int(wait_s * NANOSECONDS), 1_000_000)
        try:
            await self._link.send(self._next_subject, json.dumps(request).encode(), self._reply)
        except Disconnected:
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


class Consumers:
    """Makes consumers over one connection."""

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
        """The last message of every subject that matches, without payload, however many there are."""
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
        made = await api(
            self._link, f"CONSUMER.CREATE.{stream}.{name}.{filter_}", request, f"keys of {stream}"
        )
        found: list[Stored] = []
        if made["num_pending"]:
            consumer = JetStreamConsumer(self._link, stream, name, ephemeral=True)
            try:
                await consumer.open()
                while deliveries := await consumer.fetch(KEYS_A_FETCH, 0):
                    found += [delivery.stored for delivery in deliveries]
            finally:
                await consumer.close()
        return found

    async def delete(self, stream: str, durable: str) -> None:
        await api(
            self._link, f"CONSUMER.DELETE.{stream}.{durable}", None, f"delete consumer {durable} of {stream}"
        )

    async def states(self, stream: str) -> dict[str, ConsumerState]:
        """How far each durable consumer is; the server tells of some hundred at a time."""
        found: dict[str, ConsumerState] = {}
        offset = 0
        while True:
            page = await api(
                self._link, f"CONSUMER.LIST.{stream}", {"offset": offset}, f"consumers of {stream}"
            )
            rows = page.get("consumers") or []
            found |= {row["name"]: _state(row) for row in rows if row["config"].get("durable_name")}
            offset += len(rows)
            if not rows or offset >= page["total"]:
                return found

    async def _attach(self, spec: ConsumerSpec) -> bool:
        """Whether the durable consumer exists, and is as ``spec`` says."""
        try:
            info = await consumer_info(self._link, spec.stream, str(spec.durable))
        except StreamMissing:
            raise
        except NotFound:
            return False
        _compare(spec, info["config"])
        return True

    async def _create(self, spec: ConsumerSpec, name: str) -> None:
        request = {"stream_name": spec.stream, "config": _config(spec, name), "action": "create"}
        subject = f"CONSUMER.CREATE.{spec.stream}.{name}"
        if len(spec.filters) == 1:
            # So permissions can limit who reads what.
            subject += f".{spec.filters[0]}"
        try:
            await api(self._link, subject, request, f"consumer {name} of {spec.stream}")
        except BadInput:
            # Somebody else made it in this moment.
            if spec.durable is None or not await self._attach(spec):
                raise


async def api(link: Link, request: str, body: Mapping[str, Any] | None, what: str) -> dict[str, Any]:
    """Ask the JetStream API.

    Raises:
        Unavailable: nobody answers. Otherwise as `failures.answer`.
    """
    payload = b"" if body is None else json.dumps(body).encode()
    reply = await link.call(f"$JS.API.{request}", payload, CALL_TIMEOUT_S)
    if is_unanswered(reply):
        raise Unavailable(f"{what}: JetStream does not answer", hint="is it enabled, and has it a leader?")
    return failures.answer(reply.data, what)


async def consumer_info(link: Link, stream: str, name: str) -> dict[str, Any]:
    """What the server says of a consumer."""
    return await api(link, f"CONSUMER.INFO.{stream}.{name}", None, f"consumer {name} of {stream}")


def _state(info: Mapping[str, Any]) -> ConsumerState:
    return ConsumerState(
        delivered_sequence=info["delivered"]["stream_seq"],
        ack_floor_sequence=info["ack_floor"]["stream_seq"],
        ack_pending=info["num_ack_pending"],
        pending=info["num_pending"],
    )


def _config(spec: ConsumerSpec, name: str) -> dict[str, Any]:
    config: dict[str, Any] = {
        "name": name,
        "ack_policy": "explicit",
        "ack_wait": int(spec.ack_wait_s * NANOSECONDS),
        "max_ack_pending": spec.ack_pending_max,
        "replay_policy": "instant",
        "deliver_policy": "all",
    }
    if len(spec.filters) == 1:
        config["filter_subject"] = spec.filters[0]
    elif spec.filters:
        config["filter_subjects"] = list(spec.filters)
    if spec.durable is None:
        config["inactive_threshold"] = int(EPHEMERAL_IDLE_S_MAX * NANOSECONDS)
    else:
        config["durable_name"] = name
    if spec.start_sequence is not None:
        config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": max(spec.start_sequence, 1)}
    elif spec.start_time_ms is not None:
        config |= {"deliver_policy": "by_start_time", "opt_start_time": rfc3339(spec.start_time_ms)}
    return config


def _compare(spec: ConsumerSpec, found: Mapping[str, Any]) -> None:
    """Check an existing consumer.

    Raises:
        ConfigDiffers: it cannot serve; each difference is named.
    """
    filters = found.get("filter_subjects") or (
        [found["filter_subject"]] if found.get("filter_subject") else []
    )
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
            hint="delete the consumer to have it made anew; its place in the stream is lost with it",
        )


def _list(filters: object) -> str:
    return ", ".join(sorted(map(str, filters))) if isinstance(filters, (list, tuple)) and filters else "none"


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


__all__ = ["Consumers", "JetStreamConsumer", "JetStreamDelivery", "api", "consumer_info"]
