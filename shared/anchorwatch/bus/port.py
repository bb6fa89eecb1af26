"""What the mesh needs of a message bus.

Two implementations keep this contract, and one conformance suite holds them to it: ``bus.jetstream`` (NATS) and
``bus.sim`` (in memory, seeded faults). The operations are primitive on purpose: each is one attempt. Retrying,
reading back and deciding whether a write landed is `anchorwatch.journal`'s work, so that both buses share it.

A fence (`Expect`) is compared by the server when it stores the message: the last sequence of any subject matching
``Expect.subject`` must be ``Expect.sequence`` (0: none exists). See
https://docs.nats.io/nats-concepts/jetstream/headers for the headers behind it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from anchorwatch.core.errors import AnchorWatchError, Conflict, Damaged, Fenced, NotFound, Unavailable
from anchorwatch.topology.streams import BucketSpec, StreamSpec

MESSAGE_ID_HEADER = "Nats-Msg-Id"


class WrongLastSequence(Fenced):
    """The fence of a write did not hold. ``spurious_possible``: another write may merely have been in flight."""

    code = "wrong_last_sequence"

    def __init__(
        self, message: str | None = None, *, hint: str = "", spurious_possible: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.spurious_possible = spurious_possible


class BatchRefused(AnchorWatchError):
    """The server stored nothing of an atomic batch, for a reason that is no fence."""

    code = "batch_refused"
    retryable: ClassVar[bool] = True


class StreamMissing(NotFound):
    """No stream takes this subject."""

    code = "stream_missing"


class KeyExists(Conflict):
    """The key exists, or its revision is not the expected one."""

    code = "key_exists"


class Disconnected(Unavailable):
    """The bus is not connected."""

    code = "disconnected"


class Unreadable(Damaged):
    """The server has a message there, and its disk has damaged it."""


@dataclass(frozen=True, slots=True)
class Expect:
    """A fence: the last sequence of what matches ``subject`` must be ``sequence`` when the message is stored."""

    subject: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """Deliver to ``target`` (a subject of the same stream) at ``at_ms`` (Unix time). Replaces the subject's last one."""

    at_ms: int
    target: str


@dataclass(frozen=True, slots=True)
class Message:
    """What is to be stored. ``message_id`` dedupes within the stream's window; ``ttl_s`` removes it by itself.

    ``expect_last``: a fence on the whole stream, its last sequence; of a batch, the first message may have it.
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
    """The server stored the message at ``sequence``; ``duplicate``: it says that an earlier one has this message id."""

    stream: str
    sequence: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Stored:
    """A message as it stands in a stream. ``time_ms`` is the server's, Unix milliseconds."""

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
    """The answer to a read: messages in sequence order, complete for what was asked up to ``up_to``.

    ``up_to`` is the last sequence of the stream that the answering server had: a decision that depends on
    sequence N may trust the answer only when ``up_to >= N``. ``more``: the limit was reached, or an answer
    may not be longer; read on from the last sequence + 1.
    """

    messages: tuple[Stored, ...]
    up_to: int
    more: bool = False


@dataclass(frozen=True, slots=True)
class ConsumerSpec:
    """A durable pull consumer (or, with ``durable`` None, an ephemeral one that ends with its reader).

    ``start_sequence``: begin there; None: at the start of the stream. Redelivery has no end: `max_deliver`
    is never set, since a message past it would be stranded in silence. ``filters_before``: those of an earlier
    release; a durable consumer that has them gets ``filters`` in their place, and goes on where it is.
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
    """What a stream holds: first and last sequence, number of messages, bytes."""

    first_sequence: int
    last_sequence: int
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """How far a consumer is. Sequences are the stream's."""

    delivered_sequence: int
    ack_floor_sequence: int
    ack_pending: int
    pending: int


class Delivery(Protocol):
    """A message handed to a consumer; every one is acked, naked or left to redelivery.

    The four answers are fire-and-forget: acks are no fence, and a lost one means a redelivery. They raise
    nothing when the bus is away.
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
        """Start the ack wait anew: still working."""
        ...


class Consumer(Protocol):
    """A pull consumer."""

    async def fetch(self, limit: int, timeout_s: float) -> list[Delivery]:
        """Up to ``limit`` messages, as soon as there is at least one; empty after ``timeout_s``.

        A lost connection makes it return early and empty after a short pause rather than raise: the caller's loop just goes on.

        Raises:
            NotFound: the consumer was deleted; make it anew.
            Disconnected: the consumer or the bus was closed here.
        """
        ...

    async def state(self) -> ConsumerState: ...
    async def close(self) -> None:
        """Stop pulling. A durable consumer stays on the server."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """A key's value; ``revision`` for compare-and-set. ``value`` is b"" and ``deleted`` true for a marker in a watch."""

    key: str
    value: bytes
    revision: int
    deleted: bool = False


class KeyValue(Protocol):
    """A bucket. Looking only: whoever must be right reads the journal."""

    async def get(self, key: str) -> Entry | None:
        """The key's entry; None when it never was, was deleted, or expired."""
        ...

    async def put(self, key: str, value: bytes) -> int: ...
    async def create(self, key: str, value: bytes, ttl_s: int | None = None) -> int:
        """Write a key that does not exist.

        Raises:
            KeyExists: it does.
        """
        ...

    async def update(self, key: str, value: bytes, revision: int, ttl_s: int | None = None) -> int:
        """Replace the entry of exactly that revision.

        Raises:
            KeyExists: the revision is another one, or the entry expired.
        """
        ...

    async def delete(self, key: str, revision: int | None = None) -> None: ...
    async def keys(self) -> list[str]: ...
    async def revision(self) -> int:
        """The bucket's last revision: it changes with any write to any key. Cheap: to see whether a cache is still good."""
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
"""Takes (subject, payload); what it returns answers a request (None: no answer)."""


class Subscription(Protocol):
    """Somebody who listens."""

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
            StreamMissing: no stream takes the subject.
            Unavailable: no answer; *it may have been stored all the same*.
            TooLarge: above the stream's message size.
        """
        ...

    async def publish_batch(self, messages: Sequence[Message], timeout_s: float = 5.0) -> Ack:
        """Store all or none, in order, at consecutive sequences; the ack carries the last. One attempt; one stream.

        Fence at most one message of a subject family: the server does not see the batch's own earlier messages.

        Raises:
            WrongLastSequence, StreamMissing, Unavailable, TooLarge: as `publish`.
            BatchRefused: a duplicate message id, or another reason of the server's.
        """
        ...

    async def last(self, stream: str, filters: Sequence[str], timeout_s: float = 5.0) -> Page:
        """The last message of every subject that matches one of ``filters``; check ``up_to`` before trusting it.

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

        ``reach``: it is enough for the caller that the answer reaches up to there. When the messages
        themselves do, the bus spares the second question, how far beyond the last of them nothing
        follows (a round trip). Then ``more`` may tell of nothing beyond ``reach``.

        Where more than 1024 subjects match, ``up_to`` is the last message's sequence, or
        ``from_sequence - 1`` when there is none: let ``filter_`` match what the decision depends on.
        """
        ...

    async def consumer(self, spec: ConsumerSpec) -> Consumer:
        """Make the consumer, or attach to the durable one of that name.

        Raises:
            ConfigDiffers: it exists with other filters or another ack wait; a start that differs is no difference.
        """
        ...

    async def delete_consumer(self, stream: str, durable: str) -> None: ...
    async def consumer_states(self, stream: str) -> Mapping[str, ConsumerState]:
        """How far each durable consumer of the stream is, by name.

        Raises:
            StreamMissing: there is no such stream.
        """
        ...

    async def ensure_stream(self, spec: StreamSpec) -> None:
        """Make the stream, or check that it is so.

        Raises:
            ConfigDiffers: it exists and differs in a way that matters; the message names each difference.
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
            StreamMissing: there is no such stream.
        """
        ...

    async def counts(self, stream: str, filter_: str) -> Mapping[str, int]:
        """How many messages the stream has of each subject that matches, by its own account: also of what it cannot read.

        Raises:
            StreamMissing: there is no such stream.
        """
        ...

    async def purge(self, stream: str, subject: str, keep_from: int | None = None) -> int:
        """Remove the messages of a subject filter (below ``keep_from``); returns how many."""
        ...

    async def bucket(self, name: str) -> KeyValue: ...
    async def object_store(self, name: str) -> ObjectStore: ...
    async def request(self, subject: str, payload: bytes, timeout_s: float) -> bytes:
        """Ask whoever answers ``subject``.

        Raises:
            Unavailable: nobody answers there, or not in time.
        """
        ...

    async def announce(self, subject: str, payload: bytes) -> None:
        """Tell whoever listens now; nothing is stored, nothing is promised. While the bus is away it is dropped in silence."""
        ...

    async def subscribe(self, subject: str, handler: Handler, queue: str = "") -> Subscription:
        """Call ``handler`` for each message or request; with ``queue``, one member of the group gets each."""
        ...

    async def server_time_ms(self) -> int:
        """The server's clock, Unix milliseconds, as well as it can be told from here."""
        ...

    def reached(self, stream: str) -> int:
        """The highest sequence of the stream that an answer to this bus has shown, over all its connections; 0: none has."""
        ...

    @property
    def connected(self) -> bool: ...
    @property
    def connections(self) -> int:
        """How often it was connected so far: between two looks at the same number the server has not been restarted."""
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
