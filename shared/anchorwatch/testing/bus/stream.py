"""One stream: its messages, their order, and what makes them go away again."""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice

from anchorwatch.bus.port import MESSAGE_ID_HEADER, Page, Stored, StreamState, Unreadable, ranges
from anchorwatch.core.errors import BadInput, TooLarge
from anchorwatch.testing.bus.compare import dedupe_window_s
from anchorwatch.testing.bus.index import SubjectIndex
from anchorwatch.topology.streams import StreamSpec
from anchorwatch.topology.subjects import matches

LAST_SUBJECTS_MAX = 1024
TAIL = 64
"""The newest messages are few enough to be looked through one by one; most reads are of these."""


def headers_bytes(headers: Mapping[str, str]) -> int:
    """The size of headers on the wire."""
    if not headers:
        return 0
    return len("NATS/1.0\r\n\r\n") + sum(
        len(f"{name}: {value}\r\n".encode()) for name, value in headers.items()
    )


def message_bytes(stored: Stored) -> int:
    """What a stored message counts in its stream's size."""
    headers = headers_bytes(stored.headers)
    # The rest is the file store's own: a header of 22 bytes, a checksum of 8, and the length of the headers.
    return len(stored.subject) + len(stored.payload) + headers + 30 + (4 if headers else 0)


class StreamStore:
    """What the server keeps of a stream. ``now_ms`` is the server's clock; expiry happens when it is looked at."""

    def __init__(self, spec: StreamSpec, now_ms: Callable[[], int]) -> None:
        self.spec = spec
        self.last_sequence = 0
        self.messages: OrderedDict[int, Stored] = OrderedDict()
        self.on_stored: list[Callable[[Stored], None]] = []
        self.on_removed: list[Callable[[int], None]] = []
        self.unreadable: dict[int, Stored] = {}  # counted, and damaged on the disk
        self.replaced: dict[str, Stored] = {}  # what stood at a subject before, for stale reads
        self._now_ms = now_ms
        self._index = SubjectIndex()
        self._bytes = 0
        self._expiries: list[tuple[int, int]] = []
        self._ids: OrderedDict[str, tuple[int, int]] = OrderedDict()

    # Writing.

    def append(
        self, subject: str, payload: bytes, headers: Mapping[str, str], ttl_s: int | None = None
    ) -> Stored:
        """Store a message that was checked, and tell whoever follows the stream."""
        stored = self.insert(subject, payload, headers, ttl_s)
        self.announce(stored)
        return stored

    def insert(
        self, subject: str, payload: bytes, headers: Mapping[str, str], ttl_s: int | None = None
    ) -> Stored:
        """Store without telling: the messages of a batch are told when all are there."""
        now_ms = self._now_ms()
        self.last_sequence += 1
        stored = Stored(subject, self.last_sequence, now_ms, payload, dict(headers))
        self.messages[stored.sequence] = stored
        self._bytes += message_bytes(stored)
        node = self._index.add(subject, stored.sequence)
        if ttl_s is not None:
            heapq.heappush(self._expiries, (now_ms + ttl_s * 1000, stored.sequence))
        if (message_id := stored.message_id) is not None:
            self._ids.pop(message_id, None)  # a new entry stands last: the window is read from its old end
            self._ids[message_id] = (stored.sequence, now_ms)
        if self.spec.per_subject_max > 0:
            for sequence in node.sequences[: -self.spec.per_subject_max]:
                self.replaced[subject] = self.messages[sequence]
                self.remove(sequence)
        return stored

    def restore(self, stored: Stored) -> None:
        """Store a message as it stood elsewhere, at its own sequence and time, and tell whoever follows.

        Raises:
            BadInput: its sequence is not behind the last one.
        """
        if stored.sequence <= self.last_sequence:
            raise BadInput(f"sequence {stored.sequence} is not behind {self.last_sequence}")
        self.last_sequence = stored.sequence
        self.messages[stored.sequence] = stored
        self._bytes += message_bytes(stored)
        self._index.add(stored.subject, stored.sequence)
        self.announce(stored)

    def rot(self, sequence: int, payload: bytes) -> None:
        """Have other bytes stand at a sequence, as a disk that fails unseen does; nobody is told."""
        stored = self.messages[sequence]
        self.messages[sequence] = replace(stored, payload=payload)
        self._bytes += len(payload) - len(stored.payload)

    def lose(self, sequence: int) -> None:
        """Have the disk damage a message so that the server cannot read it; it counts it all the same."""
        self.unreadable[sequence] = self.messages.pop(sequence)
        for tell in self.on_removed:
            tell(sequence)

    def cut(self, last: int) -> None:
        """Have the server lose all that is after ``last``, as one does that starts on a damaged block: it says nothing of it."""
        for sequence in [each for each in self.messages if each > last]:
            self.remove(sequence)
        self.last_sequence = last

    def announce(self, stored: Stored) -> None:
        for tell in self.on_stored:
            tell(stored)

    def duplicate_of(self, message_id: str | None) -> int | None:
        """The sequence of the message with this id within the dedupe window. A retry does not lengthen the window."""
        if message_id is None:
            return None
        horizon_ms = self._now_ms() - round(dedupe_window_s(self.spec) * 1000)
        while self._ids:
            oldest = next(iter(self._ids))
            if self._ids[oldest][1] > horizon_ms:
                break
            del self._ids[oldest]
        known = self._ids.get(message_id)
        return None if known is None or known[1] <= horizon_ms else known[0]

    def remove(self, sequence: int) -> None:
        stored = self.messages.pop(sequence, None)
        if stored is not None:
            self._bytes -= message_bytes(stored)
            self._index.discard(stored.subject, sequence)
            for tell in self.on_removed:
                tell(sequence)

    def expire(self) -> None:
        """Remove what is past its time to live or the stream's age."""
        now_ms = self._now_ms()
        while self._expiries and self._expiries[0][0] <= now_ms:
            self.remove(heapq.heappop(self._expiries)[1])
        if self.spec.age_max_s > 0:
            horizon_ms = now_ms - round(self.spec.age_max_s * 1000)
            while self.messages:
                first = next(iter(self.messages.values()))
                if first.time_ms > horizon_ms:
                    break
                self.remove(first.sequence)

    def purge(self, filter_: str, keep_from: int | None) -> int:
        """Remove what matches and lies below ``keep_from``; how many."""
        doomed = [
            sequence
            for sequences in self._index.match(filter_)
            for sequence in (
                sequences if keep_from is None else sequences[: bisect_left(sequences, keep_from)]
            )
        ]
        for sequence in doomed:
            self.remove(sequence)
        return len(doomed)

    # Reading.

    def takes(self, subject: str) -> bool:
        return any(matches(pattern, subject) for pattern in self.spec.subjects)

    def last_of(self, filter_: str) -> int:
        """The last sequence of what matches, 0 for none."""
        self.expire()
        last = self._index.last(filter_)
        # The real server takes a last message that it cannot read for none.
        return 0 if last in self.unreadable else last

    def lasts(self, filters: Iterable[str], up_to: int, subjects_max: int = LAST_SUBJECTS_MAX) -> Page:
        """The last message up to ``up_to`` of every subject that matches.

        Raises:
            TooLarge: more than ``subjects_max`` subjects match. Unreadable: one of them is.
        """
        self.expire()
        found: set[int] = set()
        for filter_ in filters:
            for sequences in self._index.match(filter_):
                count = bisect_right(sequences, up_to)
                if count:
                    found.add(sequences[count - 1])
            if len(found) > subjects_max:
                raise TooLarge(
                    f"more than {subjects_max} subjects match {filter_!r}", hint="use a narrower filter"
                )
        self._check_readable(found)
        return Page(tuple(self.messages[sequence] for sequence in sorted(found)), up_to)

    def check_quiet(self, filter_: str, from_sequence: int) -> None:
        """As the real bus finds out that nothing follows: by the last message of each subject, from a sequence on.

        Raises:
            Unreadable: one of them is.
        """
        if self.unreadable:
            lasts = (sequences[-1] for sequences in self._index.match(filter_))
            self._check_readable(last for last in lasts if last >= from_sequence)

    def _check_readable(self, lasts: Iterable[int]) -> None:
        if not self.unreadable.keys().isdisjoint(lasts):
            raise Unreadable(
                f"the last message of a subject of {self.spec.name} cannot be read by the server"
            )

    def range(self, filter_: str, from_sequence: int, limit: int, up_to: int) -> Page:
        """Matching messages in order, from a sequence on, as far as ``up_to``."""
        self.expire()
        chosen: list[Stored] = []
        for sequence in self._sequences(filter_, from_sequence):
            if sequence > up_to:
                break
            if sequence in self.unreadable:
                continue
            if len(chosen) == limit:
                return Page(tuple(chosen), up_to, more=True)
            chosen.append(self.messages[sequence])
        return Page(tuple(chosen), up_to)

    def is_wide(self, filter_: str) -> bool:
        """Whether more subjects match than the server says the last messages of."""
        return any(True for _ in islice(self._index.match(filter_), LAST_SUBJECTS_MAX, None))

    def count(self, filters: Iterable[str], from_sequence: int) -> int:
        """How many messages match, from a sequence on."""
        self.expire()
        found: set[int] = set()
        for filter_ in filters:
            for sequences in self._index.match(filter_):
                found.update(sequences[bisect_left(sequences, from_sequence) :])
        return len(found)

    def state(self) -> StreamState:
        self.expire()
        first = next(iter(self.messages), self.last_sequence + 1 if self.last_sequence else 0)
        count = len(self.messages) + len(self.unreadable)
        return StreamState(first, self.last_sequence, count, self._bytes)

    def holes(self) -> list[tuple[int, int]]:
        """The sequences up to the last that are not there, as ranges."""
        self.expire()
        return ranges(set(range(1, self.last_sequence + 1)) - self.messages.keys() - self.unreadable.keys())

    def counts(self, filter_: str) -> dict[str, int]:
        """How many messages each subject that matches has."""
        self.expire()
        there = self.messages | self.unreadable
        return dict(Counter(there[at].subject for at in self._sequences(filter_, 1)))

    def _sequences(self, filter_: str, from_sequence: int) -> Iterator[int]:
        if self.last_sequence - from_sequence < TAIL:
            tail = range(from_sequence, self.last_sequence + 1)
            found = ((at, self.messages.get(at) or self.unreadable.get(at)) for at in tail)
            return iter([at for at, stored in found if stored and matches(filter_, stored.subject)])
        return heapq.merge(
            *(sequences[bisect_left(sequences, from_sequence) :] for sequences in self._index.match(filter_))
        )


__all__ = ["LAST_SUBJECTS_MAX", "MESSAGE_ID_HEADER", "StreamStore", "headers_bytes", "message_bytes"]
