"""The message bus, as the mesh uses it.

Two implementations pass one conformance suite (INV-915): ``bus.jetstream`` (NATS) and ``anchorwatch.testing.bus`` (in
memory, seeded faults). Each operation is one attempt. `anchorwatch.journal` retries, reads back, and decides whether a
write was stored, so that both buses share that code.

The server compares a fence (`Expect`) when it stores the message: the last sequence of all subjects that match
``Expect.subject`` must be ``Expect.sequence`` (0: no message matches). The headers are described in
https://docs.nats.io/nats-concepts/jetstream/headers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from anchorwatch.core.errors import AnchorWatchError, Conflict, Damaged, Fenced, NotFound, Unavailable
from anchorwatch.topology.streams import BucketSpec, StreamLimits, StreamSpec

MESSAGE_ID_HEADER = "Nats-Msg-Id"


class WrongLastSequence(Fenced):
    """The fence of a write did not hold. ``spurious_possible``: the cause may be another write in flight."""

    code = "wrong_last_sequence"

    def __init__(
        self, message: str | None = None, *, hint: str = "", spurious_possible: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.spurious_possible = spurious_possible


class BatchRefused(AnchorWatchError):
    """The server refused an atomic batch for a reason other than a fence, and stored none of it."""

    code = "batch_refused"
    retryable: ClassVar[bool] = True


class StreamMissing(NotFound):
    """No stream stores this subject."""

    code = "stream_missing"


class StreamFull(Unavailable):
    """The stream has as many bytes as it may have, and the server stored nothing."""

    code = "stream_full"

    def __init__(self, message: str | None = None, *, hint: str = "") -> None:
        super().__init__(message, hint=hint or "`anchorwatch doctor` shows the limit; try again later")


class KeyExists(Conflict):
    """The key exists, or has another revision than expected."""

    code = "key_exists"


class Disconnected(Unavailable):
    """The bus is not connected."""

    code = "disconnected"


class Unreadable(Damaged):
    """The server holds the message but cannot read it: its disk has damaged it."""


@dataclass(frozen=True, slots=True)
class Expect:
    """A fence: when the message is stored, the last sequence that matches ``subject`` must be ``sequence``."""

    subject: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """Deliver to ``target``, a subject of the same stream, at ``at_ms`` (Unix time). It replaces the subject's schedule."""

    at_ms: int
    target: str


@dataclass(frozen=True, slots=True)
class Message:
    """A message to store. ``message_id`` dedupes within the stream's window; after ``ttl_s`` the server removes it.

    ``expect_last``: a fence on the last sequence of the whole stream; only the first message of a batch may have it.
    """

    subject: str
    payload: bytes
    message_id: str | None = None
    expect: Expect | None = None
    expect_last: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    schedule: Schedule | None = None
    ttl_s: int | None = None


@dataclass(frozen=True, slots=True)
class Ack:
    """The server stored the message at ``sequence``; ``duplicate``: an earlier message has this message id."""

    stream: str
    sequence: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Stored:
    """A message in a stream. ``time_ms``: the server's time in Unix milliseconds."""

    subject: str
    sequence: int
    time_ms: int
    payload: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def message_id(self) -> str | None:
        return self.headers.get(MESSAGE_ID_HEADER)


@dataclass(frozen=True, slots=True)
class Page:
    """The answer to a read: messages in sequence order, complete for the request up to ``up_to``.

    ``up_to`` is the last sequence of the stream at the answering server. A decision that depends on sequence N
    may use the answer only if ``up_to >= N``. ``more``: the limit of messages or bytes was reached; continue at
    the last sequence + 1.
    """

    messages: tuple[Stored, ...]
    up_to: int
    more: bool = False


@dataclass(frozen=True, slots=True)
class ConsumerSpec:
    """A durable pull consumer (or, with ``durable`` None, an ephemeral one that ends with its reader).

    ``start_sequence``: the first sequence; None: the start of the stream. Redelivery is unlimited: `max_deliver`
    is never set, because the server drops a message above it silently. ``filters_before``: the filters of an
    earlier release. A durable consumer that has them gets ``filters`` instead, and keeps its position.
    """

    stream: str
    filters: tuple[str, ...]
    durable: str | None
    ack_wait_s: float = 5.0
    ack_pending_max: int = 256
    start_sequence: int | None = None
    start_time_ms: int | None = None
    filters_before: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamState:
    """The contents of a stream: first and last sequence, number of messages, bytes."""

    first_sequence: int
    last_sequence: int
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """The position of a consumer. Sequences are the stream's."""

    delivered_sequence: int
    ack_floor_sequence: int
    ack_pending: int
    pending: int


class Delivery(Protocol):
    """A message delivered to a consumer; it is acked, naked, or left to redelivery.

    Acks are fire-and-forget: a lost one causes a redelivery. They raise nothing without a connection.
    """

    @property
    def stored(self) -> Stored: ...
    @property
    def attempt(self) -> int:
        """1 for the first delivery, more for each redelivery."""
        ...

    async def ack(self) -> None: ...
    async def nak(self, delay_s: float = 0) -> None: ...
    async def in_progress(self) -> None:
        """Restart the ack wait: the handler is still working."""
        ...


class Consumer(Protocol):
    """A pull consumer."""

    async def fetch(self, limit: int, timeout_s: float) -> list[Delivery]:
        """Up to ``limit`` messages, as soon as there is at least one; empty after ``timeout_s``.

        Without a connection it returns empty after a short pause, so that the caller's loop continues.

        Raises:
            NotFound: the consumer was deleted; make it again.
            Disconnected: the consumer or the bus was closed by this client.
        """
        ...

    async def state(self) -> ConsumerState: ...
    async def close(self) -> None:
        """Stop pulling. A durable consumer stays on the server."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """A key's value; ``revision`` is for compare-and-set. A deletion marker has ``value`` b"" and ``deleted``."""

    key: str
    value: bytes
    revision: int
    deleted: bool = False


class KeyValue(Protocol):
    """A bucket. A read may be stale: decisions depend on the journal only."""

    async def get(self, key: str) -> Entry | None:
        """The key's entry; None if it does not exist, was deleted, or expired."""
        ...

    async def put(self, key: str, value: bytes) -> int: ...
    async def create(self, key: str, value: bytes, ttl_s: int | None = None) -> int:
        """Write a key that does not exist.

        Raises:
            KeyExists: the key exists.
        """
        ...

    async def update(self, key: str, value: bytes, revision: int, ttl_s: int | None = None) -> int:
        """Replace the entry of exactly that revision.

        Raises:
            KeyExists: the entry has another revision, or expired.
        """
        ...

    async def delete(self, key: str, revision: int | None = None) -> None: ...
    async def keys(self) -> list[str]: ...
    async def revision(self) -> int:
        """The bucket's last revision, which every write to any key changes: a cheap check of a cache."""
        ...


class ObjectStore(Protocol):
    """Bytes under a name, written once."""

    async def put(self, name: str, data: bytes) -> None: ...
    async def get(self, name: str) -> bytes | None: ...
    async def delete(self, name: str) -> None: ...


def ranges(sequences: Iterable[int]) -> list[tuple[int, int]]:
    """Sequences as ranges (first, last), in order."""
    found: list[tuple[int, int]] = []
    for sequence in sorted(sequences):
        if found and found[-1][1] == sequence - 1:
            found[-1] = (found[-1][0], sequence)
        else:
            found.append((sequence, sequence))
    return found


Handler = Callable[[str, bytes], Awaitable[bytes | None]]
"""Takes (subject, payload) and returns the answer to a request (None: no answer)."""


class Subscription(Protocol):
    """An active subscription."""

    async def close(self) -> None: ...


class Bus(Protocol):
    """A connected bus.

    Every call raises `Unavailable` (or its child `Disconnected`) when the server does not answer in time,
    and `Denied` when the credentials do not allow it.
    """

    async def publish(self, message: Message, timeout_s: float = 5.0) -> Ack:
        """Store one message; one attempt.

        Raises:
            WrongLastSequence: the fence did not hold.
            StreamMissing: no stream stores the subject.
            Unavailable: no answer; *the message may have been stored*.
            TooLarge: it exceeds the stream's message size.
            StreamFull: the stream has no room for it; nothing was stored.
        """
        ...

    async def publish_batch(self, messages: Sequence[Message], timeout_s: float = 5.0) -> Ack:
        """Store all or none, in order, at consecutive sequences; the ack carries the last. One attempt; one stream.

        Fence at most one message of a subject family: the server ignores the batch's own earlier messages.

        Raises:
            WrongLastSequence, StreamMissing, Unavailable, TooLarge: as `publish`.
            BatchRefused: a message id is a duplicate, or the server has another reason.
        """
        ...

    async def last(self, stream: str, filters: Sequence[str], timeout_s: float = 5.0) -> Page:
        """The last message of each subject that matches one of ``filters``; check ``up_to`` before a decision.

        Raises:
            TooLarge: more than 1024 subjects match.
        """
        ...

    async def range(
        self,
        stream: str,
        filter_: str,
        from_sequence: int,
        limit: int = 256,
        timeout_s: float = 5.0,
        reach: int | None = None,
    ) -> Page:
        """Messages matching ``filter_`` from a sequence on, in order, at most ``limit``.

        ``reach``: the sequence that the caller needs. If the messages reach it, the bus omits the second
        request (a round trip), which proves how far nothing follows. Then ``more`` may ignore messages
        after ``reach``.

        If more than 1024 subjects match, ``up_to`` is the last message's sequence, or ``from_sequence - 1``
        without one: choose a ``filter_`` that matches only what the decision depends on.
        """
        ...

    async def consumer(self, spec: ConsumerSpec) -> Consumer:
        """Make the consumer, or attach to the durable one.

        Raises:
            ConfigDiffers: it exists with other filters or another ack wait; its start may differ.
        """
        ...

    async def delete_consumer(self, stream: str, durable: str) -> None: ...
    async def consumer_states(self, stream: str) -> Mapping[str, ConsumerState]:
        """The state of each durable consumer of the stream, by name.

        Raises:
            StreamMissing: the stream does not exist.
        """
        ...

    async def ensure_stream(self, spec: StreamSpec) -> None:
        """Make the stream, or compare the existing one.

        Raises:
            ConfigDiffers: it has another configuration; the message names each difference.
        """
        ...

    async def limits(self, stream: str) -> StreamLimits:
        """The limits that the stream has.

        Raises:
            StreamMissing: the stream does not exist.
        """
        ...

    async def set_limits(self, stream: str, limits: StreamLimits) -> None:
        """Change the limits of a stream. It loses no message to fewer bytes, but those that are too old.

        Raises:
            StreamMissing: the stream does not exist.
        """
        ...

    async def ensure_bucket(self, spec: BucketSpec) -> None: ...
    async def ensure_object_store(self, name: str) -> None: ...
    async def stream_state(self, stream: str) -> StreamState: ...
    async def stream_metadata(self, stream: str) -> Mapping[str, str]:
        """What was stored with the stream when it was made (`StreamSpec.metadata`).

        Raises:
            StreamMissing: there is no such stream.
        """
        ...

    async def holes(self, stream: str) -> Sequence[tuple[int, int]]:
        """The sequences up to the stream's last that it does not hold, as ranges (first, last), in order.

        Raises:
            StreamMissing: the stream does not exist.
        """
        ...

    async def counts(self, stream: str, filter_: str) -> Mapping[str, int]:
        """The server's count of messages for each matching subject, unreadable ones included.

        Raises:
            StreamMissing: the stream does not exist.
        """
        ...

    async def purge(self, stream: str, subject: str, keep_from: int | None = None) -> int:
        """Remove the messages of a subject filter (below ``keep_from``); returns their number."""
        ...

    async def bucket(self, name: str) -> KeyValue: ...
    async def object_store(self, name: str) -> ObjectStore: ...
    async def request(self, subject: str, payload: bytes, timeout_s: float) -> bytes:
        """Send a request to a subscriber of ``subject``, and return the answer.

        Raises:
            Unavailable: no subscriber, or no answer in time.
        """
        ...

    async def announce(self, subject: str, payload: bytes) -> None:
        """Publish to the present subscribers, without storage or guarantee. Without a connection it is dropped."""
        ...

    async def subscribe(self, subject: str, handler: Handler, queue: str = "") -> Subscription:
        """Call ``handler`` for each message or request; with ``queue``, one member of the group gets each."""
        ...

    async def server_time_ms(self) -> int:
        """The server's clock in Unix milliseconds, estimated at the client."""
        ...

    def reached(self, stream: str) -> int:
        """The highest sequence of the stream in any answer to this bus, over all its connections; 0 without one."""
        ...

    @property
    def connected(self) -> bool: ...
    @property
    def connections(self) -> int:
        """How often it has connected: while the number is the same, the server has not restarted."""
        ...

    async def close(self) -> None: ...


__all__ = [
    "MESSAGE_ID_HEADER",
    "Ack",
    "BatchRefused",
    "Bus",
    "Consumer",
    "ConsumerSpec",
    "ConsumerState",
    "Delivery",
    "Disconnected",
    "Entry",
    "Expect",
    "Handler",
    "KeyExists",
    "KeyValue",
    "Message",
    "ObjectStore",
    "Page",
    "Schedule",
    "Stored",
    "StreamMissing",
    "StreamState",
    "Subscription",
    "Unreadable",
    "WrongLastSequence",
    "ranges",
]
