"""A client of the simulated server: the bus that services get."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from anchorwatch.bus.port import (
    Ack,
    ConsumerSpec,
    ConsumerState,
    Handler,
    KeyValue,
    Message,
    ObjectStore,
    Page,
    StreamState,
    Subscription,
)
from anchorwatch.core.errors import BadInput, Denied, Unavailable
from anchorwatch.testing.bus.calls import CALL_S, Caller, check_subject
from anchorwatch.testing.bus.engine import Engine
from anchorwatch.testing.bus.faults import FaultKind
from anchorwatch.testing.bus.kv import SimKeyValue, SimObjectStore
from anchorwatch.testing.bus.link import Link, SimUser
from anchorwatch.testing.bus.reader import SimConsumer
from anchorwatch.testing.bus.rpc import SimSubscription
from anchorwatch.topology.streams import BucketSpec, StreamLimits, StreamSpec

BATCH_MESSAGES_MAX = 1000


class SimBus:
    """One client, from `SimServer.connect`. ``on_end`` is called when it was closed or killed."""

    def __init__(self, server: Engine, link: Link, user: SimUser, on_end: Callable[[SimBus], None]) -> None:
        self.server = server
        self.link = link
        self.user = user
        self.calls = Caller(server, link, user)
        self._on_end = on_end
        self._readers: dict[SimConsumer, None] = {}

    @property
    def name(self) -> str:
        return self.link.name

    @property
    def connected(self) -> bool:
        return self.link.connected

    @property
    def connections(self) -> int:
        return self.link.connections

    def reached(self, stream: str) -> int:
        return self.calls.reached(stream)

    # Faults on a test's order.

    def cut(self) -> None:
        """Break its connection: calls in flight fail at once, new ones wait for `reconnect` until their timeout."""
        self._record(FaultKind.CUT)
        self.link.cut()
        self.leave_pulls()

    def reconnect(self) -> None:
        """Undo a cut. A killed client stays dead: connect a new one."""
        self.server.trace(f"{self.name} reconnect")
        self.link.reconnect()

    def freeze(self) -> None:
        """Stop its process, as SIGSTOP does: nothing it awaits returns before `thaw`."""
        self._record(FaultKind.FREEZE)
        self.link.freeze()

    def thaw(self) -> None:
        self.server.trace(f"{self.name} thaw")
        self.link.thaw()

    def kill(self) -> None:
        """End its process: each further call fails, and its deliveries come again after their ack wait."""
        self._record(FaultKind.KILL)
        self.link.kill()
        self._end()

    def leave_pulls(self) -> None:
        """The connection is lost: the server drops its pulls, or has not noticed yet."""
        for reader in self._readers:
            reader.leave(orphaned=self.server.faults.strikes(FaultKind.ORPHANED_PULL))

    # The port.

    async def publish(self, message: Message, timeout_s: float = CALL_S) -> Ack:
        return await self.calls.publish(message, timeout_s)

    async def publish_batch(self, messages: Sequence[Message], timeout_s: float = CALL_S) -> Ack:
        if not messages or len(messages) > BATCH_MESSAGES_MAX:
            raise BadInput(f"a batch has 1 to {BATCH_MESSAGES_MAX} messages, not {len(messages)}")
        for message in messages:
            check_subject(message.subject)
            if not self.user.may_publish(message.subject):
                raise Denied(f"{self.user.name} may not publish to {message.subject}")
        batch = tuple(messages)
        ack = await self.calls.call(
            batch[-1].subject, lambda server: server.publish_batch(batch), timeout_s, write=True
        )
        self.calls.note(ack.stream, ack.sequence)
        return ack

    async def last(self, stream: str, filters: Sequence[str], timeout_s: float = CALL_S) -> Page:
        wanted = tuple(filters)
        page = await self.calls.call(
            f"$JS.API.DIRECT.GET.{stream}", lambda server: server.last(stream, wanted), timeout_s
        )
        self.calls.note(stream, page.up_to)
        return page

    async def range(
        self,
        stream: str,
        filter_: str,
        from_sequence: int,
        limit: int = 256,
        timeout_s: float = CALL_S,
        reach: int | None = None,
    ) -> Page:
        if limit < 1:
            raise BadInput(f"cannot read {limit} messages")
        page = await self.calls.call(
            f"$JS.API.DIRECT.GET.{stream}",
            lambda server: server.range(stream, filter_, max(from_sequence, 1), limit, reach),
            timeout_s,
        )
        if page.messages:
            self.calls.note(stream, page.messages[-1].sequence)
        return page

    async def consumer(self, spec: ConsumerSpec) -> SimConsumer:
        name = await self.calls.call(
            f"$JS.API.CONSUMER.CREATE.{spec.stream}.{spec.durable or 'ephemeral'}",
            lambda server: server.consumers.ensure(spec),
        )
        return SimConsumer(self.calls, self._readers, spec.stream, name, ephemeral=spec.durable is None)

    async def delete_consumer(self, stream: str, durable: str) -> None:
        await self.calls.call(
            f"$JS.API.CONSUMER.DELETE.{stream}.{durable}",
            lambda server: server.consumers.delete(stream, durable),
        )

    async def consumer_states(self, stream: str) -> dict[str, ConsumerState]:
        return await self.calls.call(
            f"$JS.API.CONSUMER.LIST.{stream}", lambda server: server.consumers.states(stream)
        )

    async def ensure_stream(self, spec: StreamSpec) -> None:
        await self.calls.call(f"$JS.API.STREAM.CREATE.{spec.name}", lambda server: server.ensure_stream(spec))

    async def ensure_bucket(self, spec: BucketSpec) -> None:
        await self.calls.call(
            f"$JS.API.STREAM.CREATE.KV_{spec.name}", lambda server: server.ensure_bucket(spec)
        )

    async def ensure_object_store(self, name: str) -> None:
        await self.calls.call(f"$JS.API.STREAM.CREATE.OBJ_{name}", lambda server: server.objects.ensure(name))

    async def stream_state(self, stream: str) -> StreamState:
        return await self.calls.call(
            f"$JS.API.STREAM.INFO.{stream}", lambda server: server.stream(stream).state()
        )

    async def stream_metadata(self, stream: str) -> dict[str, str]:
        return await self.calls.call(
            f"$JS.API.STREAM.INFO.{stream}", lambda server: dict(server.stream(stream).spec.metadata)
        )

    async def holes(self, stream: str) -> list[tuple[int, int]]:
        return await self.calls.call(
            f"$JS.API.STREAM.INFO.{stream}", lambda server: server.stream(stream).holes()
        )

    async def counts(self, stream: str, filter_: str) -> dict[str, int]:
        return await self.calls.call(
            f"$JS.API.STREAM.INFO.{stream}", lambda server: server.stream(stream).counts(filter_)
        )

    async def limits(self, stream: str) -> StreamLimits:
        return await self.calls.call(
            f"$JS.API.STREAM.INFO.{stream}", lambda server: server.stream(stream).spec.limits
        )

    async def set_limits(self, stream: str, limits: StreamLimits) -> None:
        await self.calls.call(
            f"$JS.API.STREAM.UPDATE.{stream}", lambda server: server.stream(stream).set_limits(limits)
        )

    async def purge(self, stream: str, subject: str, keep_from: int | None = None) -> int:
        return await self.calls.call(
            f"$JS.API.STREAM.PURGE.{stream}", lambda server: server.stream(stream).purge(subject, keep_from)
        )

    async def bucket(self, name: str) -> KeyValue:
        return SimKeyValue(self.calls, name)

    async def object_store(self, name: str) -> ObjectStore:
        return SimObjectStore(self.calls, name)

    async def request(self, subject: str, payload: bytes, timeout_s: float) -> bytes:
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        faults = self.server.faults

        def answer(data: bytes) -> None:
            if not answered.done() and not faults.strikes(FaultKind.LOST_ANNOUNCEMENT):
                answered.set_result(data)

        def expire() -> None:
            if not answered.done():
                answered.set_exception(Unavailable(f"no answer on {subject} within {timeout_s:g} s"))

        timer = self.server.clock.call_later(timeout_s, expire)
        try:
            reached = await self.calls.call(
                subject, lambda server: server.router.route(subject, payload, answer), timeout_s
            )
            if not reached:
                raise Unavailable(f"no service answers on {subject}")
            return await self.link.wait(answered)
        finally:
            timer.cancel()
            if not answered.cancel():
                answered.exception()

    async def announce(self, subject: str, payload: bytes) -> None:
        def deliver(server: Engine) -> None:
            server.router.route(subject, payload)
            # An announcement on a stream's subject is stored there, as on the real server.
            for store in server.streams.values():
                if store.takes(subject):
                    store.append(subject, payload, {})

        await self.calls.call(subject, deliver)

    async def subscribe(self, subject: str, handler: Handler, queue: str = "") -> Subscription:
        await self.link.up(CALL_S)
        await self.link.travel(self.server.latency())
        if not self.user.may_subscribe(subject):
            raise Denied(f"{self.user.name} may not subscribe to {subject}")
        subscription = SimSubscription(self.server.router, self.link, subject, queue, handler)
        self.server.router.subscriptions[subscription] = None
        return subscription

    async def server_time_ms(self) -> int:
        return self.server.now_ms()

    async def close(self) -> None:
        if not (self.link.closed or self.link.killed):
            self.link.close()
            self._end()
        await asyncio.sleep(0)

    def _record(self, kind: FaultKind) -> None:
        self.server.faults.count(kind)
        self.server.trace(f"{self.name} {kind}")

    def _end(self) -> None:
        self.leave_pulls()
        for reader in self._readers:
            reader.end()
        self._on_end(self)


__all__ = ["SimBus", "check_subject"]
