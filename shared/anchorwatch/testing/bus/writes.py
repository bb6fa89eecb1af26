"""What the server checks before it stores a message, or a batch of them.

The order of the checks and their holes are the real server's, measured: an unreplicated stream compares the fence
before it looks for the message id, a replicated one the other way round; within a batch, ids come first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from anchorwatch.bus.port import MESSAGE_ID_HEADER, Ack, BatchRefused, Message, WrongLastSequence
from anchorwatch.core.errors import BadInput, TooLarge
from anchorwatch.testing.bus.faults import FaultKind, Faults
from anchorwatch.testing.bus.schedules import Schedules
from anchorwatch.testing.bus.stream import StreamStore, headers_bytes

PAYLOAD_BYTES_MAX = 1024 * 1024


def wire_headers(message: Message) -> dict[str, str]:
    """The headers as the real bus sends them: their size counts, and readers see them."""
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
    """The messages with the headers that hold a batch together."""
    batch = {"Nats-Batch-Id": f"{number:032x}"}
    marked = []
    for sequence, message in enumerate(messages, 1):
        headers = {**message.headers, **batch, "Nats-Batch-Sequence": str(sequence)}
        if sequence == len(messages):
            headers["Nats-Batch-Commit"] = "1"
        marked.append(replace(message, headers=headers))
    return marked


def rfc3339(at_ms: int) -> str:
    """Unix milliseconds as the server reads a time."""
    seconds, milliseconds = divmod(at_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds:03d}Z"


class Writer:
    """Writes to one stream."""

    def __init__(self, store: StreamStore, schedules: Schedules, faults: Faults, *, replicated: bool) -> None:
        self._store = store
        self._schedules = schedules
        self._faults = faults
        self._replicated = replicated

    def publish(self, message: Message) -> Ack:
        """Store one message, or refuse it.

        Raises:
            WrongLastSequence, TooLarge, BadInput: as the port says.
        """
        self._check_form(message)
        name = self._store.spec.name
        if self._replicated and (known := self._store.duplicate_of(message.message_id)) is not None:
            return Ack(name, known, duplicate=True)
        self._check_fence(message)
        self._check_target(message)
        if (known := self._store.duplicate_of(message.message_id)) is not None:
            return Ack(name, known, duplicate=True)
        return Ack(name, self._insert(message, tell=True))

    def publish_batch(self, messages: Sequence[Message]) -> Ack:
        """Store all or none.

        Raises:
            BatchRefused: a message id that is known, or stands twice in the batch; the stream takes no batches.
            WrongLastSequence, TooLarge, BadInput: as the port says.
        """
        name = self._store.spec.name
        if not self._store.spec.atomic_batches:
            raise BatchRefused(f"stream {name} takes no atomic batches")
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
                # Only the literal subject is seen so; through a wildcard the batch does not see itself.
                raise WrongLastSequence(
                    "fenced on a subject that this batch writes itself", spurious_possible=True
                )
            self._check_fence(message)
            self._check_target(message)
            written.add(message.subject)
        sequences = [self._insert(message, tell=False) for message in messages]
        for sequence in sequences:
            if (stored := self._store.messages.get(sequence)) is not None:
                self._store.announce(stored)
        return Ack(name, sequences[-1])

    def _insert(self, message: Message, *, tell: bool) -> int:
        headers = wire_headers(message)
        if message.schedule is not None:
            headers["Nats-Rollup"] = "sub"  # the server's own: it replaces what stands at the subject
        stored = self._store.insert(message.subject, message.payload, headers, message.ttl_s)
        self._schedules.on_written(self._store, stored, message.schedule)
        if tell:
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
            raise TooLarge(f"a message of {size} bytes", hint=f"stream {spec.name} takes at most {limit}")
        if message.ttl_s is not None and not spec.message_ttl:
            raise BadInput(f"stream {spec.name} takes no time to live")
        if message.schedule is not None and not spec.schedules:
            raise BadInput(f"stream {spec.name} takes no schedules")

    def _check_target(self, message: Message) -> None:
        if message.schedule is None:
            return
        target = message.schedule.target
        if target == message.subject or not self._store.takes(target):
            raise BadInput(f"{target!r} cannot be a target here")


__all__ = ["PAYLOAD_BYTES_MAX", "Writer", "wire_headers"]
