"""The server's part of every call: streams, buckets, object stores and consumers. It knows no client.

`anchorwatch.testing.bus.server` adds the clients; the modules of a client call an `Engine` only.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence

from anchorwatch.bus.port import Ack, BatchRefused, Message, Page, Stored, StreamMissing
from anchorwatch.core.errors import BadInput, Conflict
from anchorwatch.testing.bus.clock import SimClock
from anchorwatch.testing.bus.compare import check_stream
from anchorwatch.testing.bus.consumers import Consumers
from anchorwatch.testing.bus.faults import FaultKind, Faults
from anchorwatch.testing.bus.rpc import Router
from anchorwatch.testing.bus.stream import StreamStore, overlap
from anchorwatch.testing.bus.writes import Schedules, SourceFeed, Writer
from anchorwatch.topology.streams import BucketSpec, StreamSpec

KV_HISTORY_MAX = 64


class Objects:
    """All object stores of a server: bytes by name, written once."""

    def __init__(self) -> None:
        self._stores: dict[str, dict[str, bytes]] = {}

    def ensure(self, store: str) -> None:
        """Make the store if it does not exist."""
        self._stores.setdefault(store, {})

    def put(self, store: str, name: str, data: bytes) -> None:
        """Write once; writing the same bytes again succeeds.

        Raises:
            Conflict: it exists with other bytes.
            StreamMissing: the store does not exist.
        """
        if self._store(store).setdefault(name, data) != data:
            raise Conflict(f"object {name} of {store} exists with other content")

    def get(self, store: str, name: str) -> bytes | None:
        return self._store(store).get(name)

    def delete(self, store: str, name: str) -> None:
        self._store(store).pop(name, None)

    def _store(self, name: str) -> dict[str, bytes]:
        found = self._stores.get(name)
        if found is None:
            raise StreamMissing(f"object store {name} does not exist")
        return found


class Engine:
    """What is durable, and how it answers. It survives a `stop` of the server.

    ``latency_s``: the shortest and longest time of one message, each way. ``replicated``: the order of checks is that
    of a replicated stream. ``trace`` collects one line for each act. ``on_write`` is called with each write's subject
    in the task that is about to write.
    """

    def __init__(
        self,
        *,
        clock: SimClock | None = None,
        faults: Faults | None = None,
        seed: int = 0,
        latency_s: tuple[float, float] = (0.0, 0.0),
        replicated: bool = False,
        trace: list[str] | None = None,
    ) -> None:
        self.clock = clock or SimClock()
        self.faults = faults or Faults()
        self.rng = random.Random(f"server {seed}")  # noqa: S311 - repeatability is the purpose
        self.router = Router(self.faults, self.rng)
        self.streams: dict[str, StreamStore] = {}
        self.consumers = Consumers(self.stream, self.clock, self.faults, self.trace)
        self.objects = Objects()
        self.running = True
        self.trace_lines = trace
        self.on_write: Callable[[str], None] | None = None
        self._latency_s = latency_s
        self._replicated = replicated
        self._feeds: dict[str, list[SourceFeed]] = {}
        self._schedules = Schedules(self.clock, self.faults, lambda: self.running, self.trace)

    async def advance(self, seconds: float) -> None:
        """Let time pass, with all that happens in it."""
        await self.clock.advance(seconds)

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def step_clock(self, seconds: float) -> None:
        """Set the calendar forward or back, as NTP may."""
        self.faults.count(FaultKind.CLOCK_STEP)
        self.clock.step(seconds)

    def trace(self, line: str) -> None:
        if self.trace_lines is not None:
            self.trace_lines.append(f"{self.clock.now_s():.6f} {line}")

    def latency(self) -> float:
        """How long one message takes, in seconds."""
        low, high = self._latency_s
        return low if low == high else self.rng.uniform(low, high)

    # Streams.

    def stream(self, name: str) -> StreamStore:
        """The stream ``name``.

        Raises:
            StreamMissing: it does not exist.
        """
        store = self.streams.get(name)
        if store is None:
            raise StreamMissing(f"stream {name} does not exist")
        return store

    def stream_of(self, subject: str) -> StreamStore:
        """The stream that stores a subject.

        Raises:
            StreamMissing: no stream does.
        """
        for store in self.streams.values():
            if store.takes(subject):
                return store
        raise StreamMissing(f"no stream stores {subject}")

    def ensure_stream(self, spec: StreamSpec) -> None:
        """Make the stream, or compare the existing one.

        Raises:
            ConfigDiffers: it exists with another configuration; the message names each difference.
            BadInput: its subjects overlap with another stream's.
        """
        existing = self.streams.get(spec.name)
        if existing is not None:
            check_stream(existing.spec, spec)
            return
        for other in self.streams.values():
            for theirs in other.spec.subjects:
                if any(overlap(mine, theirs) for mine in spec.subjects):
                    raise BadInput(f"stream {spec.name} overlaps with {other.spec.name} on {theirs}")
        self._make_stream(spec)

    def ensure_bucket(self, spec: BucketSpec) -> None:
        """Make the bucket: a stream ``KV_<name>``, as on the real server.

        Raises:
            ConfigDiffers: it exists with another configuration.
            BadInput: its history is too long.
        """
        if not 1 <= spec.history <= KV_HISTORY_MAX:
            raise BadInput(f"bucket {spec.name}: history is 1 to {KV_HISTORY_MAX}, not {spec.history}")
        self.ensure_stream(
            StreamSpec(
                name=f"KV_{spec.name}",
                subjects=() if spec.sources else (f"$KV.{spec.name}.>",),
                per_subject_max=spec.history,
                message_ttl=spec.key_ttl,
                sources=spec.sources,
            )
        )

    def _make_stream(self, spec: StreamSpec) -> None:
        store = self.streams[spec.name] = StreamStore(spec, self.clock.now_ms)
        store.on_stored.append(
            lambda stored: self.trace(f"stored {spec.name} {stored.sequence} {stored.subject}")
        )
        for source in spec.sources:
            feed = SourceFeed(source, store, self.streams.get, self.clock, self.faults)
            feed.catch_up()
            self._feeds.setdefault(source.stream, []).append(feed)
            if (origin := self.streams.get(source.stream)) is not None:
                origin.on_stored.append(feed.on_stored)
        # Feeds of streams that were made before their source.
        for feed in self._feeds.get(spec.name, []):
            store.on_stored.append(feed.on_stored)

    # Messages.

    def publish(self, message: Message) -> Ack:
        """Store a message. Core subscribers of its subject receive it too, stored or not."""
        self.router.route(message.subject, message.payload)
        return self._writer(self.stream_of(message.subject)).publish(message)

    def publish_batch(self, messages: Sequence[Message]) -> Ack:
        """Store all or none.

        Raises:
            StreamMissing: no stream stores one of the subjects.
            BatchRefused: the subjects belong to several streams; or as `Writer.publish_batch`.
        """
        stores = [self.stream_of(message.subject) for message in messages]
        for message in messages:
            # Before the checks: the real server passes even refused messages to core subscribers.
            self.router.route(message.subject, message.payload)
        if any(store is not stores[0] for store in stores):
            raise BatchRefused("the batch is incomplete: it names subjects of more than one stream")
        return self._writer(stores[0]).publish_batch(messages)

    def last(self, stream: str, filters: Sequence[str]) -> Page:
        store = self.stream(stream)
        return store.lasts(filters, self._seen(store))

    def range(self, stream: str, filter_: str, from_sequence: int, limit: int, reach: int | None) -> Page:
        """As in the port; ``up_to`` is what the real bus would report."""
        store = self.stream(stream)
        seen = self._seen(store)
        page = store.range(filter_, from_sequence, limit, seen)
        up_to = page.messages[-1].sequence if page.messages else from_sequence - 1
        if not page.more and (reach is None or up_to < reach) and not store.is_wide(filter_):
            store.check_quiet(filter_, up_to + 1)
            up_to = max(up_to, seen)
        return dataclasses.replace(page, up_to=up_to)

    def key(self, stream: str, subject: str) -> Stored | None:
        """A key's entry on one replica, which may be the previous one."""
        store = self.stream(stream)
        page = store.lasts([subject], store.last_sequence)
        if (replaced := store.replaced.get(subject)) is not None and self.faults.strikes(FaultKind.STALE_KEY):
            return replaced
        return page.messages[0] if page.messages else None

    def _seen(self, store: StreamStore) -> int:
        """The last sequence that the answering replica has; 0 for an empty stream."""
        if not store.state().messages:
            return 0
        if self.faults.strikes(FaultKind.STALE_READ):
            return self.faults.earlier(store.last_sequence)
        return store.last_sequence

    def _writer(self, store: StreamStore) -> Writer:
        return Writer(store, self._schedules, self.faults, replicated=self._replicated)


__all__ = ["Engine"]
