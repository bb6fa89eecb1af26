"""Stores messages: one, or an atomic batch. Each call is one attempt."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from nats.aio.msg import Msg

from anchorwatch.bus.jetstream.api import api, is_unanswered, parse_answer, rfc3339
from anchorwatch.bus.jetstream.link import Link
from anchorwatch.bus.port import MESSAGE_ID_HEADER, Ack, Message, StreamMissing
from anchorwatch.core.errors import AnchorWatchError, BadInput, Denied, Unavailable

BATCH_MESSAGES_MAX = 1000
_HOLE = b'"err_code":10176'


def headers_of(message: Message) -> dict[str, str]:
    """The headers by which the server fences, dedupes, schedules and expires a message."""
    headers = dict(message.headers)
    if message.message_id is not None:
        headers[MESSAGE_ID_HEADER] = message.message_id
    if message.expect is not None:
        headers["Nats-Expected-Last-Subject-Sequence"] = str(message.expect.sequence)
        # Always both: in a replicated stream, a write with the subject and one without do not exclude each other.
        headers["Nats-Expected-Last-Subject-Sequence-Subject"] = message.expect.subject
    if message.expect_last is not None:
        headers["Nats-Expected-Last-Sequence"] = str(message.expect_last)
    if message.ttl_s is not None:
        headers["Nats-TTL"] = f"{message.ttl_s}s"
    if message.schedule is not None:
        headers["Nats-Schedule"] = f"@at {rfc3339(message.schedule.at_ms)}"
        headers["Nats-Schedule-Target"] = message.schedule.target
    return headers


class Publisher:
    """Stores messages over one connection."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def publish(self, message: Message, timeout_s: float) -> Ack:
        reply = await self._link.call(
            message.subject, message.payload, timeout_s, headers_of(message) or None
        )
        if is_unanswered(reply):
            raise await self._unanswered_error(message.subject)
        return _ack(parse_answer(reply.data, f"publish to {message.subject}"))

    async def publish_batch(self, messages: Sequence[Message], timeout_s: float) -> Ack:
        if not messages or len(messages) > BATCH_MESSAGES_MAX:
            raise BadInput(f"a batch has 1 to {BATCH_MESSAGES_MAX} messages, not {len(messages)}")
        subjects = tuple(message.subject for message in messages)
        batch = secrets.token_hex(16)
        link = self._link
        # Each message has the reply inbox, so that the server reports an error of any message.
        with link.open_call(subjects) as (denied, _), link.open_call(subjects, _ends_batch) as (call, reply):
            await link.ready(subjects[0], timeout_s)
            for sequence, message in enumerate(messages, 1):
                headers = headers_of(message)
                headers["Nats-Batch-Id"] = batch
                headers["Nats-Batch-Sequence"] = str(sequence)
                if sequence == len(messages):
                    headers["Nats-Batch-Commit"] = "1"
                await link.send(message.subject, message.payload, reply, headers)
            await call.settle(timeout_s)
            # The first error is the cause; later ones report a batch with a gap.
            last = next(filter(_ends_batch, call.messages))
            if _HOLE in last.data:
                # A denial may be the cause. It is not an answer and may arrive after them.
                await link.round_trip()
                denied.raise_failure()
        if is_unanswered(last):
            raise await self._unanswered_error(subjects[0])
        return _ack(parse_answer(last.data, f"batch of {len(messages)} to {subjects[0]} …"))

    async def _unanswered_error(self, subject: str) -> AnchorWatchError:
        """The error of an unanswered publish: the subject has no stream, or its stream has no leader."""
        away = Unavailable(
            f"no stream stores {subject} at present",
            hint="an election of its leader may be in progress; try again",
        )
        try:
            names = await api(self._link, "STREAM.NAMES", {"subject": subject}, "names of streams")
        except Denied as error:
            away.hint = f"the credentials do not allow to list streams: {error}"
            return away
        except AnchorWatchError:
            return away
        if names.get("streams") or names.get("offline"):
            return away
        return StreamMissing(f"no stream stores {subject}")


def _ends_batch(message: Msg) -> bool:
    # The answer to a staged message is empty.
    return bool(message.data) or is_unanswered(message)


def _ack(answer: Mapping[str, object]) -> Ack:
    return Ack(str(answer["stream"]), int(str(answer["seq"])), bool(answer.get("duplicate", False)))
