"""Reads that say how far they can be trusted.

The server answers direct reads from any replica, and a replica may lag. So each `Page` says up to which sequence it is
complete, and that figure must come from the same answer as the content:

- the last messages of subjects (``multi_last``) end with it, in ``Nats-UpTo-Sequence``. Only when nothing matches does the
  server leave it out; then the same question is asked again together with a subject that surely exists, the *witness*.
- a range (``next_by_subj``) never carries it. It is complete up to its own last message. How far beyond nothing follows is
  asked of ``multi_last`` with a start sequence: "nothing matches from there on, and I am at N" closes the gap, whichever
  replica says it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from nats.aio.msg import Msg

from anchorwatch.bus.jetstream import failures
from anchorwatch.bus.jetstream.link import NO_RESPONDERS, STATUS_HEADER, Link
from anchorwatch.bus.jetstream.times import unix_ms
from anchorwatch.bus.port import Page, Stored, StreamMissing, Unreadable
from anchorwatch.core.errors import AnchorWatchError, BadInput, TooLarge, Unavailable
from anchorwatch.topology.subjects import matches

SUBJECTS_MAX = 1024
ANSWER_BYTES_MAX = 1 << 20
"""Where the server ends an answer (behind the message that passes it), and says that there is more."""
ANSWERS_MAX = 32
"""How many answers are under way at once: a server ends a connection that is 64 MiB behind, and all that hangs on it."""
WITNESS_TRIES_MAX = 3
# The server's own headers on a message that it hands out; the rest is the publisher's.
_SERVED = frozenset(
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
            # Without the word that ends an answer.
            found = await self._get(
                stream, f"$JS.API.DIRECT.GET.{stream}", json.dumps(request).encode(), timeout_s
            )
            if found is not None:
                return Page((found,), found.sequence, more=found.sequence < reach)
        messages, end = await self._ask(stream, {"batch": limit, **request}, deadline)
        up_to = messages[-1].sequence if messages else from_sequence - 1
        if messages and int(end.get("Nats-Num-Pending", 0)):
            if len(messages) < limit and sum(len(each.payload) for each in messages) < ANSWER_BYTES_MAX // 2:
                # It ended early without need: what is last there may be what the server cannot read.
                await self._quiet_until(stream, filter_, up_to, deadline)
            return Page(messages, up_to, more=True)
        if reach is None or up_to < reach:
            up_to = await self._quiet_until(stream, filter_, up_to, deadline)
        return Page(messages, up_to)

    async def get_last(self, stream: str, subject: str, timeout_s: float) -> Stored | None:
        """The last message of one subject, from any replica; the cheapest read, and no more than a look."""
        return await self._get(stream, f"$JS.API.DIRECT.GET.{stream}.{subject}", b"", timeout_s)

    async def _get(self, stream: str, subject: str, request: bytes, timeout_s: float) -> Stored | None:
        reply = await self._link.call(subject, request, timeout_s)
        status = _status(reply)
        if status == NO_RESPONDERS:
            raise await self.why_unanswered(stream)
        if status == _NONE:
            return None
        if status is not None:
            raise _bad_status(stream, reply.headers or {})
        return _stored(reply)

    async def _quiet_until(self, stream: str, filter_: str, sequence: int, deadline: float) -> int:
        """Up to where nothing that matches follows ``sequence``; at least ``sequence``."""
        try:
            page = await self._last(stream, (filter_,), sequence + 1, deadline)
            if page is None:
                page = await self._last_with_witness(stream, (filter_,), sequence + 1, deadline)
        except TooLarge:
            return sequence
        # Something newer came meanwhile: then the range ends where it was read to.
        return max(sequence, page.up_to) if not page.messages else sequence

    async def _last(
        self, stream: str, filters: Sequence[str], from_sequence: int, deadline: float
    ) -> Page | None:
        """The last messages that are not older than ``from_sequence``; None when nothing at all matches."""
        newest: dict[str, Stored] = {}
        up_to: int | None = None
        while True:
            request: dict[str, Any] = {"multi_last": list(filters)}
            if from_sequence:
                request["seq"] = from_sequence
            messages, end = await self._ask(stream, request, deadline)
            if end.get(STATUS_HEADER) == _NONE:
                if up_to is None:
                    return None
                break
            newest.update((message.subject, message) for message in messages)
            reached = int(end["Nats-UpTo-Sequence"])
            up_to = reached if up_to is None else min(up_to, reached)
            if not messages or not int(end.get("Nats-Num-Pending", 0)):
                break
            # The server ends an answer at a number of bytes.
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
                kept = tuple(each for each in page.messages if each.subject != witness)
                if len(kept) == len(page.messages) or not any(matches(each, witness) for each in filters):
                    return Page(kept, page.up_to)
                return page
            if await self._last(stream, (witness,), from_sequence, deadline) is not None:
                # The server knows of a last message, and cannot read it: it says of all that were asked for that there is none.
                raise Unreadable(
                    f"the last message of a subject of {stream} that matches {' or '.join(filters)} cannot be read by the server",
                    hint="its disk may have damaged it; bring back the server's store from a copy",
                )
            # The witness itself is gone (purged, too old, or damaged); another reader may have found that out, and the next one.
            if self._witnesses.get(stream) == witness:
                del self._witnesses[stream]
                self._witness_from[stream] = self._witness_from.get(stream, 0) + 1
        raise Unavailable(f"{stream} changes too fast to be read")

    async def _find_witness(self, stream: str, deadline: float) -> str | None:
        """The subject of one of the stream's first messages; None when the stream is empty.

        Not of its last: when that was removed, the server says that ``>`` has none.
        """
        start = self._witness_from.get(stream, 1)
        messages, _ = await self._ask(stream, {"batch": 1, "seq": start, "next_by_subj": ">"}, deadline)
        if not messages and start > 1:
            messages, _ = await self._ask(stream, {"batch": 1, "seq": 1, "next_by_subj": ">"}, deadline)
        if not messages:
            return None
        self._witnesses[stream] = messages[0].subject
        self._witness_from[stream] = messages[0].sequence
        return messages[0].subject

    async def _ask(
        self, stream: str, request: Mapping[str, Any], deadline: float
    ) -> tuple[tuple[Stored, ...], Mapping[str, str]]:
        """The messages of a direct read, and the headers of the message that ends it."""
        payload = json.dumps({**request, "max_bytes": ANSWER_BYTES_MAX}).encode()
        await self._room(deadline)
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
            raise await self.why_unanswered(stream)
        if status == _TOO_MANY:
            raise TooLarge(
                f"more than {SUBJECTS_MAX} subjects of {stream} match", hint="read a range, or fewer subjects"
            )
        if status not in (_EOB, _NONE):
            raise _bad_status(stream, end)
        return tuple(map(_stored, replies)), end

    async def _room(self, deadline: float) -> None:
        """Wait until another answer may come."""
        if not self._answers.locked():
            await self._answers.acquire()
            return
        try:
            async with asyncio.timeout_at(deadline):
                await self._answers.acquire()
        except TimeoutError:
            raise Unavailable("too much is being read at once", hint="try again") from None

    async def why_unanswered(self, stream: str) -> AnchorWatchError:
        """Why nobody answers for ``stream``: it does not exist, or has no leader for now."""
        away = Unavailable(
            f"{stream} does not answer for now", hint="its leader may be being elected; try again"
        )
        try:
            reply = await self._link.call(f"$JS.API.STREAM.INFO.{stream}", b"", timeout_s=2.0)
            if (reply.headers or {}).get(STATUS_HEADER) == NO_RESPONDERS:
                return Unavailable("JetStream does not answer")
            failures.answer(reply.data, f"stream {stream}")
        except StreamMissing as error:
            return error
        except AnchorWatchError:
            return away
        return away


def _status(message: Msg) -> str | None:
    """What the server says in place of a message. None: it is one, whatever its publisher has written into it."""
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
        headers={key: value for key, value in headers.items() if key not in _SERVED},
    )


def _bad_status(stream: str, headers: Mapping[str, str]) -> AnchorWatchError:
    return BadInput(
        f"read of {stream}: status {headers.get(STATUS_HEADER)} {headers.get('Description', '')}".rstrip()
    )
