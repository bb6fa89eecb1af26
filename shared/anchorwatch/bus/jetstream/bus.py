"""The bus on JetStream: the parts over one connection."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Sequence

from anchorwatch.bus.jetstream import clock
from anchorwatch.bus.jetstream.api import is_unanswered
from anchorwatch.bus.jetstream.consumers import Consumers, JetStreamConsumer
from anchorwatch.bus.jetstream.kv import Bucket
from anchorwatch.bus.jetstream.link import Link
from anchorwatch.bus.jetstream.objects import Objects
from anchorwatch.bus.jetstream.publishing import Publisher
from anchorwatch.bus.jetstream.reads import Reader
from anchorwatch.bus.jetstream.responders import Responder
from anchorwatch.bus.jetstream.streams import Streams
from anchorwatch.bus.port import Ack, ConsumerSpec, ConsumerState, Handler, Message, Page, StreamState
from anchorwatch.core.errors import Unavailable
from anchorwatch.topology.streams import BucketSpec, StreamLimits, StreamSpec


class JetStreamBus:
    """A connection to NATS with the contract of `anchorwatch.bus.port.Bus`.

    It reconnects by itself. A call that waits when the connection is lost fails at once with `Disconnected`. A call
    without a connection waits for it up to its own timeout.
    """

    def __init__(self, link: Link, replicas: int) -> None:
        self._link = link
        self._publisher = Publisher(link)
        self._reader = Reader(link)
        self._consumers = Consumers(link)
        self._streams = Streams(link, replicas)
        self._clock = clock.ServerClock(link)
        self._reached: dict[str, int] = {}
        self._open: weakref.WeakSet[JetStreamConsumer | Responder] = weakref.WeakSet()

    async def publish(self, message: Message, timeout_s: float = 5.0) -> Ack:
        return self._acked(await self._publisher.publish(message, timeout_s))

    async def publish_batch(self, messages: Sequence[Message], timeout_s: float = 5.0) -> Ack:
        return self._acked(await self._publisher.publish_batch(messages, timeout_s))

    async def last(self, stream: str, filters: Sequence[str], timeout_s: float = 5.0) -> Page:
        page = await self._reader.last(stream, filters, timeout_s)
        self._note(stream, page.up_to)
        return page

    async def range(
        self,
        stream: str,
        filter_: str,
        from_sequence: int,
        limit: int = 256,
        timeout_s: float = 5.0,
        reach: int | None = None,
    ) -> Page:
        page = await self._reader.range(stream, filter_, from_sequence, limit, timeout_s, reach)
        if page.messages:
            # Without messages, ``up_to`` may only repeat the request.
            self._note(stream, page.messages[-1].sequence)
        return page

    async def consumer(self, spec: ConsumerSpec) -> JetStreamConsumer:
        consumer = await self._consumers.consumer(spec)
        self._open.add(consumer)
        return consumer

    async def delete_consumer(self, stream: str, durable: str) -> None:
        await self._consumers.delete(stream, durable)

    async def consumer_states(self, stream: str) -> dict[str, ConsumerState]:
        return await self._consumers.states(stream)

    async def ensure_stream(self, spec: StreamSpec) -> None:
        await self._streams.ensure_stream(spec)

    async def ensure_bucket(self, spec: BucketSpec) -> None:
        await self._streams.ensure_bucket(spec)

    async def ensure_object_store(self, name: str) -> None:
        await self._streams.ensure_object_store(name)

    async def stream_state(self, stream: str) -> StreamState:
        return await self._streams.state(stream)

    async def stream_metadata(self, stream: str) -> dict[str, str]:
        return await self._streams.metadata(stream)

    async def holes(self, stream: str) -> list[tuple[int, int]]:
        return await self._streams.holes(stream)

    async def counts(self, stream: str, filter_: str) -> dict[str, int]:
        return await self._streams.counts(stream, filter_)

    async def limits(self, stream: str) -> StreamLimits:
        return await self._streams.limits(stream)

    async def set_limits(self, stream: str, limits: StreamLimits) -> None:
        await self._streams.set_limits(stream, limits)

    async def purge(self, stream: str, subject: str, keep_from: int | None = None) -> int:
        return await self._streams.purge(stream, subject, keep_from)

    async def bucket(self, name: str) -> Bucket:
        return Bucket(self._link, self._publisher, self._reader, self._streams, name)

    async def object_store(self, name: str) -> Objects:
        return Objects(self._publisher, self._reader, self._streams, name)

    async def request(self, subject: str, payload: bytes, timeout_s: float) -> bytes:
        reply = await self._link.call(subject, payload, timeout_s)
        if is_unanswered(reply):
            raise Unavailable(f"no service answers {subject}")
        return reply.data

    async def announce(self, subject: str, payload: bytes) -> None:
        if self._link.connected:
            await self._link.send(subject, payload)

    async def subscribe(self, subject: str, handler: Handler, queue: str = "") -> Responder:
        responder = Responder(self._link, handler)
        await responder.open(subject, queue)
        self._open.add(responder)
        return responder

    async def server_time_ms(self) -> int:
        return await self._clock.now_ms()

    async def leader(self, stream: str) -> str:
        """The name of the server that leads a replicated stream; empty without a leader or a cluster."""
        return await self._streams.leader(stream)

    def reached(self, stream: str) -> int:
        return self._reached.get(stream, 0)

    def _acked(self, ack: Ack) -> Ack:
        self._note(ack.stream, ack.sequence)
        return ack

    def _note(self, stream: str, sequence: int) -> None:
        if sequence > self._reached.get(stream, 0):
            self._reached[stream] = sequence

    @property
    def connected(self) -> bool:
        return self._link.connected

    @property
    def connections(self) -> int:
        return self._link.connections

    async def close(self) -> None:
        # The set drops closed members by itself; the link holds those that still listen.
        await asyncio.gather(*(each.close() for each in list(self._open)))
        await self._link.close()


async def connect(  # noqa: PLR0913 - independent options, by name only
    url: str | Sequence[str],
    *,
    user: str | None,
    password: str | None,
    name: str,
    inbox: str | None = None,
    connect_timeout_s: float = 10.0,
    on_error: Callable[[str], None] | None = None,
    replicas: int = 1,
    plain: bool = False,
) -> JetStreamBus:
    """Connect to NATS.

    ``name`` appears in the server's lists. ``inbox``: the prefix of the subjects for answers, for users that may
    subscribe to nothing else (``_INBOX.planner``). ``on_error`` is called with errors that belong to no call.
    ``replicas``: of each stream that this bus makes. ``plain``: nats-py's client without the fast path.

    Raises:
        BadSettings: the fast path does not fit the installed nats-py.
        Denied: the server refuses the credentials.
        Unavailable: no server answers within ``connect_timeout_s``.
    """
    options = {"user": user, "password": password, "name": name}
    prefix = inbox or "_INBOX"
    servers = [url] if isinstance(url, str) else list(url)
    link = Link(servers, options, prefix, on_error or (lambda _: None), plain=plain)
    await link.open(connect_timeout_s)
    return JetStreamBus(link, replicas)
