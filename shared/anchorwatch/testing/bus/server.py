"""The simulated server: what is durable, and outlives every client."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterable, Sequence

from anchorwatch.bus.port import (
    Ack,
    BatchRefused,
    Message,
    Page,
    Stored,
    StreamMissing,
)
from anchorwatch.core.errors import BadInput, Denied
from anchorwatch.testing.bus.bus import SimBus
from anchorwatch.testing.bus.clock import SimClock
from anchorwatch.testing.bus.compare import check_stream
from anchorwatch.testing.bus.faults import FaultKind, Faults
from anchorwatch.testing.bus.index import overlap
from anchorwatch.testing.bus.link import Link
from anchorwatch.testing.bus.objects import Objects
from anchorwatch.testing.bus.registry import Consumers
from anchorwatch.testing.bus.rpc import Router
from anchorwatch.testing.bus.schedules import Schedules
from anchorwatch.testing.bus.sources import SourceFeed
from anchorwatch.testing.bus.stream import StreamStore
from anchorwatch.testing.bus.users import SimUser
from anchorwatch.testing.bus.writes import Writer
from anchorwatch.topology.streams import BucketSpec, StreamSpec

KV_HISTORY_MAX = 64


class SimServer:
    """One server. ``seed`` chooses queue members and delays; ``faults`` has a chance of its own.

    ``latency_s``: a message takes a time between these two, each way. ``replicated``: the order of checks is that of a
    replicated stream. ``trace`` collects one line for whatever the server does. ``on_write`` is told of each write's subject, in
    the task that is about to make it.
    """

    def __init__(
        self,
        *,
        clock: SimClock | None = None,
        faults: Faults | None = None,
        seed: int = 0,
        users: Iterable[SimUser] = (),
        latency_s: tuple[float, float] = (0.0, 0.0),
        replicated: bool = False,
        trace: list[str] | None = None,
    ) -> None:
        self.clock = clock or SimClock()
        self.faults = faults or Faults()
        self.rng = random.Random(f"server {seed}")  # noqa: S311 - to repeat is the point
        self.router = Router(self.faults, self.rng)
        self.streams: dict[str, StreamStore] = {}
        self.consumers = Consumers(self.stream, self.clock, self.faults, self.trace)
        self.objects = Objects()
        self.running = True
        self.trace_lines = trace
        self.on_write: Callable[[str], None] | None = None
        self._users = {user.name: user for user in users}
        self._latency_s = latency_s
        self._replicated = replicated
        self.clients: list[SimBus] = []
        self._feeds: dict[str, list[SourceFeed]] = {}
        self._schedules = Schedules(self.clock, self.faults, lambda: self.running, self.trace)

    # Clients.

    def connect(self, user: str = "anyone", name: str = "") -> SimBus:
        """A new client.

        Raises:
            Denied: there are users, and this is none.
        """
        known = self._users.get(user) if self._users else SimUser(user)
        if known is None:
            raise Denied(f"the server knows no user {user!r}")
        link = Link(self.clock, name or f"{user}-{len(self.clients) + 1}")
        if not self.running:
            link.cut()
        bus = SimBus(self, link, known)
        self.clients.append(bus)
        return bus

    def forget(self, bus: SimBus) -> None:
        """A client was closed or killed: what lived with its connection is gone."""
        if bus in self.clients:
            self.clients.remove(bus)
        self.router.drop(bus.link)

    # The life of the server.

    def stop(self) -> None:
        """Crash. What was acknowledged stays."""
        if self.running:
            self.running = False
            self.faults.count(FaultKind.RESTART)
            self.trace("server stops")
            for bus in self.clients:
                bus.link.cut()
                bus.leave_pulls()

    def start(self) -> None:
        """Come back; clients reconnect, and schedules that fell due meanwhile fire."""
        if not self.running:
            self.running = True
            self.trace("server starts")
            for bus in self.clients:
                bus.link.mend()
            self._schedules.fire_overdue()

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
        """The stream of that name.

        Raises:
            StreamMissing: there is none.
        """
        store = self.streams.get(name)
        if store is None:
            raise StreamMissing(f"there is no stream {name}")
        return store

    def taker(self, subject: str) -> StreamStore:
        """The stream that takes a subject.

        Raises:
            StreamMissing: none does.
        """
        for store in self.streams.values():
            if store.takes(subject):
                return store
        raise StreamMissing(f"no stream takes {subject}")

    def ensure_stream(self, spec: StreamSpec) -> None:
        """Make the stream, or compare.

        Raises:
            ConfigDiffers: it exists, and is another; each difference is named.
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
            ConfigDiffers: it exists, and is another.
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
        # Streams that were made before the one they are kept from.
        for feed in self._feeds.get(spec.name, []):
            store.on_stored.append(feed.on_stored)

    # Messages.

    def publish(self, message: Message) -> Ack:
        """Store a message; whoever listens on its subject hears it too, stored or not."""
        self.router.route(message.subject, message.payload)
        return self._writer(self.taker(message.subject)).publish(message)

    def publish_batch(self, messages: Sequence[Message]) -> Ack:
        """Store all or none.

        Raises:
            StreamMissing: no stream takes one of the subjects.
            BatchRefused: they are of more than one stream; and as `Writer.publish_batch`.
        """
        stores = [self.taker(message.subject) for message in messages]
        for message in messages:
            # Before it is decided: the real server shows to core subscribers even what it does not store.
            self.router.route(message.subject, message.payload)
        if any(store is not stores[0] for store in stores):
            raise BatchRefused("the batch is incomplete: it names subjects of more than one stream")
        return self._writer(stores[0]).publish_batch(messages)

    def last(self, stream: str, filters: Sequence[str]) -> Page:
        store = self.stream(stream)
        return store.lasts(filters, self._seen(store))

    def range(self, stream: str, filter_: str, from_sequence: int, limit: int, reach: int | None) -> Page:
        """As the port says; of ``up_to`` it says as much as the real bus would."""
        store = self.stream(stream)
        seen = self._seen(store)
        page = store.range(filter_, from_sequence, limit, seen)
        up_to = page.messages[-1].sequence if page.messages else from_sequence - 1
        if not page.more and (reach is None or up_to < reach) and not store.is_wide(filter_):
            store.check_quiet(filter_, up_to + 1)
            up_to = max(up_to, seen)
        return dataclasses.replace(page, up_to=up_to)

    def key(self, stream: str, subject: str) -> Stored | None:
        """A key's entry, as a replica has it: perhaps the one before."""
        store = self.stream(stream)
        page = store.lasts([subject], store.last_sequence)
        if (replaced := store.replaced.get(subject)) is not None and self.faults.strikes(FaultKind.STALE_KEY):
            return replaced
        return page.messages[0] if page.messages else None

    def _seen(self, store: StreamStore) -> int:
        """How far the answering server is: all the way, unless it is stale; an empty stream says 0."""
        if not store.state().messages:
            return 0
        if self.faults.strikes(FaultKind.STALE_READ):
            return self.faults.earlier(store.last_sequence)
        return store.last_sequence

    def _writer(self, store: StreamStore) -> Writer:
        return Writer(store, self._schedules, self.faults, replicated=self._replicated)


__all__ = ["SimServer"]
