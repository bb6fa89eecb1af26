"""Reads with the sequence up to which they are complete.

The server answers direct reads from any replica, and a replica may lag. So each `Page` has the sequence up to which it
is complete. That number must come from the same answer as the content:

- An answer with the last messages of subjects (``multi_last``) ends with it, in ``Nats-UpTo-Sequence``. The server
  omits it only when nothing matches. Then the request is repeated with a subject that exists, the *witness*.
- An answer with a range (``next_by_subj``) never has it. It is complete up to its own last message. A ``multi_last``
  with a start sequence proves from any replica that nothing matches between that message and the replica's last one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from nats.aio.msg import Msg

from anchorwatch.bus.jetstream.api import parse_answer, unix_ms
from anchorwatch.bus.jetstream.link import NO_RESPONDERS, STATUS_HEADER, Link
from anchorwatch.bus.port import Page, Stored, StreamMissing, Unreadable
from anchorwatch.core.errors import AnchorWatchError, BadInput, TooLarge, Unavailable
from anchorwatch.topology.subjects import matches

SUBJECTS_MAX = 1024
ANSWER_BYTES_MAX = 1 << 20
"""The size at which the server ends an answer, after the message that exceeds it, and reports more."""
ANSWERS_MAX = 32
"""Answers in flight at once: a server closes a connection that is 64 MiB late, and all its calls fail."""
WITNESS_TRIES_MAX = 3
# Headers that the server adds to a message of an answer; all others are the publisher's.
_ADDED_HEADERS = frozenset(
    {
        "Nats-Stream",
        "Nats-Subject",
        "Nats-Sequence",
        "Nats-Time-Stamp",
        "Nats-Num-Pending",
        "Nats-Last-Sequence",
    }
)
_EOB, _NONE, _TOO_MANY = "204", "404", "413"


class Reader:
    """Reads streams over one connection."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._witnesses: dict[str, str] = {}
        self._witness_from: dict[str, int] = {}
        self._answers = asyncio.Semaphore(ANSWERS_MAX)

    async def last(self, stream: str, filters: Sequence[str], timeout_s: float) -> Page:
        deadline = asyncio.get_running_loop().time() + timeout_s
        page = await self._last(stream, filters, 0, deadline)
        if page is None:
            page = await self._last_with_witness(stream, filters, 0, deadline)
        return page

    async def range(
        self, stream: str, filter_: str, from_sequence: int, limit: int, timeout_s: float, reach: int | None
    ) -> Page:
        if limit < 1:
            raise BadInput(f"cannot read {limit} messages")
        deadline = asyncio.get_running_loop().time() + timeout_s
        from_sequence = max(from_sequence, 1)
        request = {"seq": from_sequence, "next_by_subj": filter_}
        if limit == 1 and reach is not None:
            # A single read: its answer has no end message.
            found = await self._get(
                stream, f"$JS.API.DIRECT.GET.{stream}", json.dumps(request).encode(), timeout_s
            )
            if found is not None:
                return Page((found,), found.sequence, more=found.sequence < reach)
        messages, end = await self._request(stream, {"batch": limit, **request}, deadline)
        up_to = messages[-1].sequence if messages else from_sequence - 1
        if messages and int(end.get("Nats-Num-Pending", 0)):
            if len(messages) < limit and sum(len(each.payload) for each in messages) < ANSWER_BYTES_MAX // 2:
                # It ended early without a reason: the server may be unable to read the message there.
                await self._quiet_through(stream, filter_, up_to, deadline)
            return Page(messages, up_to, more=True)
        if reach is None or up_to < reach:
            up_to = await self._quiet_through(stream, filter_, up_to, deadline)
        return Page(messages, up_to)

    async def get_last(self, stream: str, subject: str, timeout_s: float) -> Stored | None:
        """The last message of one subject, from any replica: the cheapest read, without a completeness sequence."""
        return await self._get(stream, f"$JS.API.DIRECT.GET.{stream}.{subject}", b"", timeout_s)

    async def _get(self, stream: str, subject: str, request: bytes, timeout_s: float) -> Stored | None:
        reply = await self._link.call(subject, request, timeout_s)
        status = _status(reply)
        if status == NO_RESPONDERS:
            raise await self.unanswered_error(stream)
        if status == _NONE:
            return None
        if status is not None:
            raise _bad_status(stream, reply.headers or {})
        return _stored(reply)

    async def _quiet_through(self, stream: str, filter_: str, sequence: int, deadline: float) -> int:
        """The sequence up to which nothing matching follows ``sequence``; at least ``sequence``."""
        try:
            page = await self._last(stream, (filter_,), sequence + 1, deadline)
            if page is None:
                page = await self._last_with_witness(stream, (filter_,), sequence + 1, deadline)
        except TooLarge:
            return sequence
        # A newer message matches: then the range ends where it was read to.
        return max(sequence, page.up_to) if not page.messages else sequence

    async def _last(
        self, stream: str, filters: Sequence[str], from_sequence: int, deadline: float
    ) -> Page | None:
        """The last messages at or after ``from_sequence``; None when nothing matches."""
        newest: dict[str, Stored] = {}
        up_to: int | None = None
        while True:
            request: dict[str, Any] = {"multi_last": list(filters)}
            if from_sequence:
                request["seq"] = from_sequence
            messages, end = await self._request(stream, request, deadline)
            if end.get(STATUS_HEADER) == _NONE:
                if up_to is None:
                    return None
                break
            newest.update((message.subject, message) for message in messages)
            reached = int(end["Nats-UpTo-Sequence"])
            up_to = reached if up_to is None else min(up_to, reached)
            if not messages or not int(end.get("Nats-Num-Pending", 0)):
                break
            # The server ends an answer at `ANSWER_BYTES_MAX`.
            from_sequence = messages[-1].sequence + 1
        return Page(tuple(sorted(newest.values(), key=lambda each: each.sequence)), up_to)

    async def _last_with_witness(
        self, stream: str, filters: Sequence[str], from_sequence: int, deadline: float
    ) -> Page:
        for _ in range(WITNESS_TRIES_MAX):
            witness = self._witnesses.get(stream) or await self._find_witness(stream, deadline)
            if witness is None:
                return Page((), 0)
            page = await self._last(stream, (*filters, witness), from_sequence, deadline)
            if page is not None:
                others = tuple(each for each in page.messages if each.subject != witness)
                if len(others) == len(page.messages) or not any(matches(each, witness) for each in filters):
                    return Page(others, page.up_to)
                return page
            if await self._last(stream, (witness,), from_sequence, deadline) is not None:
                # The server counts a last message that it cannot read, and answers that no requested subject matches.
                raise Unreadable(
                    f"the last message of a subject of {stream} that matches {' or '.join(filters)} cannot be read by the server",
                    hint="its disk may have damaged it; restore the server's store from a copy",
                )
            # The witness was purged, expired or damaged; a concurrent reader may have replaced it already.
            if self._witnesses.get(stream) == witness:
                del self._witnesses[stream]
                self._witness_from[stream] = self._witness_from.get(stream, 0) + 1
        raise Unavailable(f"{stream} changes too fast for a consistent read")

    async def _find_witness(self, stream: str, deadline: float) -> str | None:
        """The subject of one of the stream's first messages; None when the stream is empty.

        Not its last: after its removal, the server reports no last message for ``>``.
        """
        start = self._witness_from.get(stream, 1)
        messages, _ = await self._request(stream, {"batch": 1, "seq": start, "next_by_subj": ">"}, deadline)
        if not messages and start > 1:
            messages, _ = await self._request(stream, {"batch": 1, "seq": 1, "next_by_subj": ">"}, deadline)
        if not messages:
            return None
        self._witnesses[stream] = messages[0].subject
        self._witness_from[stream] = messages[0].sequence
        return messages[0].subject

    async def _request(
        self, stream: str, request: Mapping[str, Any], deadline: float
    ) -> tuple[tuple[Stored, ...], Mapping[str, str]]:
        """The messages of a direct read, and the headers of its end message."""
        payload = json.dumps({**request, "max_bytes": ANSWER_BYTES_MAX}).encode()
        await self._acquire_slot(deadline)
        try:
            left_s = deadline - asyncio.get_running_loop().time()
            replies = await self._link.call_many(
                f"$JS.API.DIRECT.GET.{stream}", payload, max(left_s, 0.0), complete=_has_status
            )
        finally:
            self._answers.release()
        end: Mapping[str, str] = replies.pop().headers or {}
        status = end[STATUS_HEADER]
        if status == NO_RESPONDERS:
            raise await self.unanswered_error(stream)
        if status == _TOO_MANY:
            raise TooLarge(
                f"more than {SUBJECTS_MAX} subjects of {stream} match", hint="read a range, or fewer subjects"
            )
        if status not in (_EOB, _NONE):
            raise _bad_status(stream, end)
        return tuple(map(_stored, replies)), end

    async def _acquire_slot(self, deadline: float) -> None:
        """Wait for one of the `ANSWERS_MAX` slots."""
        if not self._answers.locked():
            await self._answers.acquire()
            return
        try:
            async with asyncio.timeout_at(deadline):
                await self._answers.acquire()
        except TimeoutError:
            raise Unavailable(f"more than {ANSWERS_MAX} reads are in flight", hint="try again") from None

    async def unanswered_error(self, stream: str) -> AnchorWatchError:
        """The error of an unanswered read: ``stream`` does not exist, or has no leader at present."""
        away = Unavailable(
            f"{stream} does not answer at present",
            hint="an election of its leader may be in progress; try again",
        )
        try:
            reply = await self._link.call(f"$JS.API.STREAM.INFO.{stream}", b"", timeout_s=2.0)
            if (reply.headers or {}).get(STATUS_HEADER) == NO_RESPONDERS:
                return Unavailable("JetStream does not answer")
            parse_answer(reply.data, f"stream {stream}")
        except StreamMissing as error:
            return error
        except AnchorWatchError:
            return away
        return away


def _status(message: Msg) -> str | None:
    """The server's status in place of a message; None for a message, even if its publisher has set a status header."""
    headers = message.headers or {}
    return None if message.data or "Nats-Sequence" in headers else headers.get(STATUS_HEADER)


def _has_status(message: Msg) -> bool:
    return _status(message) is not None


def _stored(message: Msg) -> Stored:
    headers = message.headers or {}
    return Stored(
        subject=headers["Nats-Subject"],
        sequence=int(headers["Nats-Sequence"]),
        time_ms=unix_ms(headers["Nats-Time-Stamp"]),
        payload=message.data,
        headers={key: value for key, value in headers.items() if key not in _ADDED_HEADERS},
    )


def _bad_status(stream: str, headers: Mapping[str, str]) -> AnchorWatchError:
    return BadInput(
        f"read of {stream}: status {headers.get(STATUS_HEADER)} {headers.get('Description', '')}".rstrip()
    )
