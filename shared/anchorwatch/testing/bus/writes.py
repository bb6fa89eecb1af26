"""What the server stores in a stream: writes of clients, scheduled messages, and copies from a source stream.

The order of the checks and their gaps were measured on the real server. An unreplicated stream compares the fence
before it looks for the message id; a replicated one does the reverse. Within a batch, ids come first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from anchorwatch.bus.port import (
    MESSAGE_ID_HEADER,
    Ack,
    BatchRefused,
    Message,
    Schedule,
    Stored,
    StreamFull,
    WrongLastSequence,
)
from anchorwatch.core.errors import BadInput, TooLarge
from anchorwatch.testing.bus.clock import SimClock, Timer
from anchorwatch.testing.bus.faults import FaultKind, Faults
from anchorwatch.testing.bus.stream import StreamStore, headers_bytes
from anchorwatch.topology.streams import Source
from anchorwatch.topology.subjects import matches

PAYLOAD_BYTES_MAX = 1024 * 1024
_WILDCARD = re.compile(r"\{\{\s*wildcard\((\d+)\)\s*\}\}")
# The real server removes these from a message that it delivers on schedule.
NOT_COPIED = frozenset(
    {
        MESSAGE_ID_HEADER,
        "Nats-Expected-Last-Subject-Sequence",
        "Nats-Expected-Last-Subject-Sequence-Subject",
        "Nats-Schedule",
        "Nats-Schedule-Target",
        "Nats-TTL",
        "Nats-Rollup",
        "Nats-Batch-Id",
        "Nats-Batch-Sequence",
        "Nats-Batch-Commit",
    }
)


def wire_headers(message: Message) -> dict[str, str]:
    """The headers that the real bus sends: they count in the message's size, and readers see them."""
    headers = dict(message.headers)
    if message.message_id is not None:
        headers[MESSAGE_ID_HEADER] = message.message_id
    if message.expect is not None:
        headers["Nats-Expected-Last-Subject-Sequence"] = str(message.expect.sequence)
        headers["Nats-Expected-Last-Subject-Sequence-Subject"] = message.expect.subject
    if message.schedule is not None:
        headers["Nats-Schedule"] = f"@at {rfc3339(message.schedule.at_ms)}"
        headers["Nats-Schedule-Target"] = message.schedule.target
    if message.expect_last is not None:
        headers["Nats-Expected-Last-Sequence"] = str(message.expect_last)
    if message.ttl_s is not None:
        headers["Nats-TTL"] = f"{message.ttl_s}s"
    return headers


def in_batch(messages: Sequence[Message], number: int) -> list[Message]:
    """The messages with the headers of a batch."""
    batch = {"Nats-Batch-Id": f"{number:032x}"}
    marked = []
    for sequence, message in enumerate(messages, 1):
        headers = {**message.headers, **batch, "Nats-Batch-Sequence": str(sequence)}
        if sequence == len(messages):
            headers["Nats-Batch-Commit"] = "1"
        marked.append(replace(message, headers=headers))
    return marked


def rfc3339(at_ms: int) -> str:
    """Unix milliseconds in the server's form of a time."""
    seconds, milliseconds = divmod(at_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds:03d}Z"


@dataclass(slots=True)
class _Armed:
    store: StreamStore
    stored: Stored
    schedule: Schedule
    timer: Timer


class Schedules:
    """All schedules of a server, at most one for each subject. ``running``: whether the server is up.

    Measured on the real server: a newer schedule replaces the subject's messages; a plain message on the subject cancels
    the schedule. When it fires, the delivered message has two headers that name its source. The schedule itself is
    removed, so the last sequence of its subject is 0 again.
    """

    def __init__(
        self, clock: SimClock, faults: Faults, running: Callable[[], bool], trace: Callable[[str], None]
    ) -> None:
        self._clock = clock
        self._faults = faults
        self._running = running
        self._trace = trace
        self._armed: dict[tuple[str, str], _Armed] = {}

    def on_written(self, store: StreamStore, stored: Stored, schedule: Schedule | None) -> None:
        """Set, replace or cancel the schedule of a subject that was written."""
        if not store.spec.schedules:
            return
        key = (store.spec.name, stored.subject)
        if (replaced := self._armed.pop(key, None)) is not None:
            replaced.timer.cancel()
        if schedule is None:
            return
        store.purge(stored.subject, stored.sequence)
        delay_s = (schedule.at_ms - self._clock.now_ms()) / 1000
        if self._faults.strikes(FaultKind.SLOW_SCHEDULE):
            delay_s = max(0.0, delay_s) + self._faults.delay_s()
        self._armed[key] = _Armed(
            store, stored, schedule, self._clock.call_later(delay_s, lambda: self._fire(key, stored.sequence))
        )

    def fire_overdue(self) -> None:
        """Fire the schedules whose time passed while the server was down."""
        now_ms = self._clock.now_ms()
        for key, armed in list(self._armed.items()):
            if armed.schedule.at_ms <= now_ms:
                self._fire(key, armed.stored.sequence)

    def _fire(self, key: tuple[str, str], sequence: int) -> None:
        armed = self._armed.get(key)
        if armed is None or armed.stored.sequence != sequence or not self._running():
            return
        del self._armed[key]
        armed.timer.cancel()
        armed.store.expire()
        if sequence not in armed.store.messages:
            return  # purged or expired
        headers = {name: value for name, value in armed.stored.headers.items() if name not in NOT_COPIED}
        fired = armed.store.insert(
            armed.schedule.target,
            armed.stored.payload,
            {**headers, "Nats-Scheduler": armed.stored.subject, "Nats-Schedule-Next": "purge"},
        )
        armed.store.remove(sequence)
        self._trace(f"fired {armed.stored.subject} -> {armed.schedule.target} {fired.sequence}")
        armed.store.announce(fired)


class Writer:
    """Checks and stores what clients write to one stream."""

    def __init__(self, store: StreamStore, schedules: Schedules, faults: Faults, *, replicated: bool) -> None:
        self._store = store
        self._schedules = schedules
        self._faults = faults
        self._replicated = replicated

    def publish(self, message: Message) -> Ack:
        """Store one message.

        Raises:
            WrongLastSequence, TooLarge, BadInput: as in the port.
        """
        self._check_form(message)
        name = self._store.spec.name
        if self._replicated and (known := self._store.duplicate_of(message.message_id)) is not None:
            return Ack(name, known, duplicate=True)
        self._check_fence(message)
        self._check_target(message)
        if (known := self._store.duplicate_of(message.message_id)) is not None:
            return Ack(name, known, duplicate=True)
        if self._store.is_full_for(message.subject, message.payload, wire_headers(message)):
            raise StreamFull(f"publish to {message.subject}: maximum bytes exceeded")
        return Ack(name, self._insert(message, announce=True))

    def publish_batch(self, messages: Sequence[Message]) -> Ack:
        """Store all or none.

        Raises:
            BatchRefused: a message id is known, or occurs twice in the batch; or the stream accepts no batches.
            WrongLastSequence, TooLarge, BadInput: as in the port.
        """
        name = self._store.spec.name
        if not self._store.spec.atomic_batches:
            raise BatchRefused(f"stream {name} accepts no atomic batches")
        messages = in_batch(messages, self._store.last_sequence + 1)
        for message in messages:
            self._check_form(message)
        ids: set[str] = set()
        written: set[str] = set()
        for message in messages:
            if message.message_id is not None:
                if message.message_id in ids or self._store.duplicate_of(message.message_id) is not None:
                    raise BatchRefused(f"message id {message.message_id!r} is a duplicate")
                ids.add(message.message_id)
            if message.expect is not None and message.expect.subject in written:
                # Only a literal subject is checked so; a fence with a wildcard does not see the batch's own messages.
                raise WrongLastSequence(
                    "the fence is on a subject that this batch writes itself", spurious_possible=True
                )
            self._check_fence(message)
            self._check_target(message)
            written.add(message.subject)
        sequences = [self._insert(message, announce=False) for message in messages]
        for sequence in sequences:
            if (stored := self._store.messages.get(sequence)) is not None:
                self._store.announce(stored)
        return Ack(name, sequences[-1])

    def _insert(self, message: Message, *, announce: bool) -> int:
        headers = wire_headers(message)
        if message.schedule is not None:
            headers["Nats-Rollup"] = "sub"  # added by the server: it replaces the subject's messages
        stored = self._store.insert(message.subject, message.payload, headers, message.ttl_s)
        self._schedules.on_written(self._store, stored, message.schedule)
        if announce:
            self._store.announce(stored)
        return stored.sequence

    def _check_fence(self, message: Message) -> None:
        expect, last = message.expect, self._store.last_sequence
        if message.expect_last is not None and message.expect_last != last:
            raise WrongLastSequence(f"the last sequence is {last}, not {message.expect_last}")
        if expect is None:
            return
        last = self._store.last_of(expect.subject)
        if last != expect.sequence:
            raise WrongLastSequence(f"the last sequence of {expect.subject} is {last}, not {expect.sequence}")
        if self._faults.strikes(FaultKind.SPURIOUS_FENCE):
            raise WrongLastSequence(f"another write on {expect.subject} is in flight", spurious_possible=True)

    def _check_form(self, message: Message) -> None:
        spec = self._store.spec
        size = len(message.payload) + headers_bytes(wire_headers(message))
        limit = (
            PAYLOAD_BYTES_MAX
            if spec.message_bytes_max < 0
            else min(spec.message_bytes_max, PAYLOAD_BYTES_MAX)
        )
        if size > limit:
            raise TooLarge(f"a message of {size} bytes", hint=f"stream {spec.name} accepts at most {limit}")
        if message.ttl_s is not None and not spec.message_ttl:
            raise BadInput(f"stream {spec.name} accepts no time to live")
        if message.schedule is not None and not spec.schedules:
            raise BadInput(f"stream {spec.name} accepts no schedules")

    def _check_target(self, message: Message) -> None:
        if message.schedule is None:
            return
        target = message.schedule.target
        if target == message.subject or not self._store.takes(target):
            raise BadInput(f"schedule target {target!r} is not another subject of this stream")


def transform(source: Source, subject: str) -> str | None:
    """The subject in the target stream; None if the source does not match it."""
    if not matches(source.src, subject):
        return None
    tokens = subject.split(".")
    found = [tokens[index] for index, token in enumerate(source.src.split(".")) if token == "*"]
    return _WILDCARD.sub(lambda match: found[int(match[1]) - 1], source.dest)


class SourceFeed:
    """Copies each matching message of one stream into another, in order, once, and changes its subject."""

    def __init__(
        self,
        source: Source,
        target: StreamStore,
        origin: Callable[[str], StreamStore | None],
        clock: SimClock,
        faults: Faults,
    ) -> None:
        self._source = source
        self._target = target
        self._origin = origin
        self._clock = clock
        self._faults = faults
        self._copied_to = 0
        self._waiting = False

    def on_stored(self, stored: Stored) -> None:
        """Copy a message of the source stream, now or after a delay."""
        if self._waiting:
            return
        if self._has_nothing_to_copy(stored):
            self._copied_to = stored.sequence
            return
        if self._faults.strikes(FaultKind.SLOW_SOURCE):
            self._waiting = True
            self._clock.call_later(self._faults.delay_s(), self.catch_up)
        else:
            self.catch_up()

    def _has_nothing_to_copy(self, stored: Stored) -> bool:
        """Whether this is the only new message and does not match: the common case, without a search."""
        return self._copied_to == stored.sequence - 1 and not matches(self._source.src, stored.subject)

    def catch_up(self) -> None:
        """Copy all matching messages that were not copied yet."""
        self._waiting = False
        origin = self._origin(self._source.stream)
        if origin is None:
            return
        page = origin.range(
            self._source.src, self._copied_to + 1, origin.last_sequence + 1, origin.last_sequence
        )
        for stored in page.messages:
            subject = transform(self._source, stored.subject)
            if subject is not None:
                self._target.append(subject, stored.payload, stored.headers)
        self._copied_to = origin.last_sequence


__all__ = ["PAYLOAD_BYTES_MAX", "Schedules", "SourceFeed", "Writer", "transform", "wire_headers"]
