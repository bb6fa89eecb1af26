"""One stream: its messages, their subjects, and their removal by age, count and purge."""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice

from anchorwatch.bus.port import Page, Stored, StreamState, Unreadable, ranges
from anchorwatch.core.errors import BadInput, TooLarge
from anchorwatch.testing.bus.compare import dedupe_window_s
from anchorwatch.topology.streams import StreamLimits, StreamSpec
from anchorwatch.topology.subjects import matches

LAST_SUBJECTS_MAX = 1024
TAIL = 64
"""The number of newest messages that a read scans one by one; most reads want only these."""


def headers_bytes(headers: Mapping[str, str]) -> int:
    """The size of headers on the wire."""
    if not headers:
        return 0
    return len("NATS/1.0\r\n\r\n") + sum(
        len(f"{name}: {value}\r\n".encode()) for name, value in headers.items()
    )


def message_bytes(stored: Stored) -> int:
    """The size of a stored message in its stream's byte count."""
    headers = headers_bytes(stored.headers)
    # The file store adds a header of 22 bytes, a checksum of 8, and the length of the headers.
    return len(stored.subject) + len(stored.payload) + headers + 30 + (4 if headers else 0)


class SubjectNode:
    """One token in the tree of subjects. ``sequences``: of the messages with exactly this subject, ascending."""

    __slots__ = ("children", "sequences")

    def __init__(self) -> None:
        self.children: dict[str, SubjectNode] = {}
        self.sequences: list[int] = []


class SubjectIndex:
    """A tree of subjects by token. Dictionaries keep insertion order, so each walk is the same in every run."""

    def __init__(self) -> None:
        self._root = SubjectNode()

    def add(self, subject: str, sequence: int) -> SubjectNode:
        """Add a stored message; sequences only grow."""
        node = self._root
        for token in subject.split("."):
            child = node.children.get(token)
            if child is None:
                child = node.children[token] = SubjectNode()
            node = child
        node.sequences.append(sequence)
        return node

    def discard(self, subject: str, sequence: int) -> None:
        """Remove a message, and the branch that becomes empty."""
        path = [self._root]
        tokens = subject.split(".")
        for token in tokens:
            path.append(path[-1].children[token])
        sequences = path[-1].sequences
        del sequences[bisect_left(sequences, sequence)]
        for token in reversed(tokens):
            node = path.pop()
            if node.children or node.sequences:
                break
            del path[-1].children[token]

    def match(self, filter_: str) -> Iterator[list[int]]:
        """The sequences of each matching subject. Change neither a list nor the index during the walk."""
        nodes = [self._root]
        tokens = filter_.split(".")
        for token in tokens[:-1] if tokens[-1] == ">" else tokens:
            if token == "*":
                nodes = [child for node in nodes for child in node.children.values()]
            else:
                nodes = [child for node in nodes if (child := node.children.get(token)) is not None]
            if not nodes:
                return
        if tokens[-1] == ">":
            stack = [child for node in reversed(nodes) for child in reversed(node.children.values())]
            while stack:
                node = stack.pop()
                if node.sequences:
                    yield node.sequences
                stack.extend(reversed(node.children.values()))
            return
        for node in nodes:
            if node.sequences:
                yield node.sequences

    def last(self, filter_: str) -> int:
        """The last sequence of all matching messages; 0 for none. A fence compares it."""
        return max((sequences[-1] for sequences in self.match(filter_)), default=0)


def overlap(one: str, other: str) -> bool:
    """Whether some subject matches both patterns."""
    mine, theirs = one.split("."), other.split(".")
    for left, right in zip(mine, theirs, strict=False):
        if ">" in (left, right):
            return True
        if left != right and "*" not in (left, right):
            return False
    return len(mine) == len(theirs)


class StreamStore:
    """The server's state of a stream. ``now_ms`` is the server's clock; a read or write expires messages first."""

    def __init__(self, spec: StreamSpec, now_ms: Callable[[], int]) -> None:
        self.spec = spec
        self.last_sequence = 0
        self.messages: OrderedDict[int, Stored] = OrderedDict()
        self.on_stored: list[Callable[[Stored], None]] = []
        self.on_removed: list[Callable[[int], None]] = []
        self.unreadable: dict[int, Stored] = {}  # counted, but damaged on disk
        self.replaced: dict[str, Stored] = {}  # the previous message of a subject, for stale reads
        self._now_ms = now_ms
        self._index = SubjectIndex()
        self._bytes = 0
        self._expiries: list[tuple[int, int]] = []
        self._ids: OrderedDict[str, tuple[int, int]] = OrderedDict()

    # Writing.

    def set_limits(self, limits: StreamLimits) -> None:
        self.spec = self.spec.with_limits(limits)

    def is_full_for(self, subject: str, payload: bytes, headers: Mapping[str, str]) -> bool:
        """Whether a message would exceed the stream's bytes."""
        if self.spec.bytes_max <= 0:
            return False
        self.expire()
        return self._bytes + message_bytes(Stored(subject, 0, 0, payload, headers)) > self.spec.bytes_max

    def append(
        self, subject: str, payload: bytes, headers: Mapping[str, str], ttl_s: int | None = None
    ) -> Stored:
        """Store a checked message and announce it to the followers of the stream."""
        stored = self.insert(subject, payload, headers, ttl_s)
        self.announce(stored)
        return stored

    def insert(
        self, subject: str, payload: bytes, headers: Mapping[str, str], ttl_s: int | None = None
    ) -> Stored:
        """Store without an announcement: the messages of a batch are announced when all are stored."""
        now_ms = self._now_ms()
        self.last_sequence += 1
        stored = Stored(subject, self.last_sequence, now_ms, payload, dict(headers))
        self.messages[stored.sequence] = stored
        self._bytes += message_bytes(stored)
        node = self._index.add(subject, stored.sequence)
        if ttl_s is not None:
            heapq.heappush(self._expiries, (now_ms + ttl_s * 1000, stored.sequence))
        if (message_id := stored.message_id) is not None:
            self._ids.pop(message_id, None)  # a new entry goes to the end: the window is read from its start
            self._ids[message_id] = (stored.sequence, now_ms)
        if self.spec.per_subject_max > 0:
            for sequence in node.sequences[: -self.spec.per_subject_max]:
                self.replaced[subject] = self.messages[sequence]
                self.remove(sequence)
        return stored

    def restore(self, stored: Stored) -> None:
        """Store a message of another server, with its sequence and time, and announce it.

        Raises:
            BadInput: its sequence is not above the last one.
        """
        if stored.sequence <= self.last_sequence:
            raise BadInput(f"sequence {stored.sequence} is not above {self.last_sequence}")
        self.last_sequence = stored.sequence
        self.messages[stored.sequence] = stored
        self._bytes += message_bytes(stored)
        self._index.add(stored.subject, stored.sequence)
        self.announce(stored)

    def corrupt(self, sequence: int, payload: bytes) -> None:
        """Replace the bytes at a sequence, as a silent disk fault does."""
        stored = self.messages[sequence]
        self.messages[sequence] = replace(stored, payload=payload)
        self._bytes += len(payload) - len(stored.payload)

    def make_unreadable(self, sequence: int) -> None:
        """Damage a message so that the server cannot read it; the server still counts it."""
        self.unreadable[sequence] = self.messages.pop(sequence)
        for callback in self.on_removed:
            callback(sequence)

    def truncate(self, last: int) -> None:
        """Lose every message after ``last`` without a report, as a server that starts on a damaged block does."""
        for sequence in [each for each in self.messages if each > last]:
            self.remove(sequence)
        self.last_sequence = last

    def announce(self, stored: Stored) -> None:
        for callback in self.on_stored:
            callback(stored)

    def duplicate_of(self, message_id: str | None) -> int | None:
        """The sequence of the message with this id in the dedupe window. A retry does not extend the window."""
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
            for callback in self.on_removed:
                callback(sequence)

    def expire(self) -> None:
        """Remove messages older than their time to live or the stream's maximum age."""
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
        """Remove the matching messages below ``keep_from``; returns their number."""
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
        """The last sequence of all matching messages, 0 for none."""
        self.expire()
        last = self._index.last(filter_)
        # The real server reports 0 if it cannot read the last message.
        return 0 if last in self.unreadable else last

    def lasts(self, filters: Iterable[str], up_to: int, subjects_max: int = LAST_SUBJECTS_MAX) -> Page:
        """The last message up to ``up_to`` of every subject that matches.

        Raises:
            TooLarge: more than ``subjects_max`` subjects match.
            Unreadable: the server cannot read the last message of a subject.
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
        """Read what the real bus reads to prove that nothing follows: each subject's last message from a sequence on.

        Raises:
            Unreadable: the server cannot read one of them.
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
        """Matching messages in order, from a sequence up to ``up_to``."""
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
        """Whether more subjects match than one answer with last messages may have."""
        return any(True for _ in islice(self._index.match(filter_), LAST_SUBJECTS_MAX, None))

    def count(self, filters: Iterable[str], from_sequence: int) -> int:
        """The number of matching messages from a sequence on."""
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
        """The missing sequences up to the last one, as ranges."""
        self.expire()
        return ranges(set(range(1, self.last_sequence + 1)) - self.messages.keys() - self.unreadable.keys())

    def counts(self, filter_: str) -> dict[str, int]:
        """The number of messages of each matching subject."""
        self.expire()
        counted = self.messages | self.unreadable
        return dict(Counter(counted[at].subject for at in self._sequences(filter_, 1)))

    def _sequences(self, filter_: str, from_sequence: int) -> Iterator[int]:
        if self.last_sequence - from_sequence < TAIL:
            tail = range(from_sequence, self.last_sequence + 1)
            found = ((at, self.messages.get(at) or self.unreadable.get(at)) for at in tail)
            return iter([at for at, stored in found if stored and matches(filter_, stored.subject)])
        return heapq.merge(
            *(sequences[bisect_left(sequences, from_sequence) :] for sequences in self._index.match(filter_))
        )


__all__ = ["LAST_SUBJECTS_MAX", "StreamStore", "SubjectIndex", "headers_bytes", "message_bytes", "overlap"]
