"""Who waits for what: the calls of one connection, and how they end.

A call ends with its answer, or with the connection, or when the server denies a subject that it sent to; a timeout is the
last resort.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from nats.aio.msg import Msg

from anchorwatch.core.errors import AnchorWatchError, Unavailable


class Waiter(Protocol):
    """Somebody who waits for messages."""

    @property
    def subjects(self) -> Sequence[str]:
        """What was sent to: when the server denies one of these, the waiter fails."""
        ...

    def receive(self, message: Msg) -> None: ...
    def fail(self, error: AnchorWatchError) -> None: ...


class Call:
    """Waits for one answer, or for several: until ``complete`` says of one that it is the last."""

    def __init__(self, subjects: Sequence[str], complete: Callable[[Msg], bool] | None) -> None:
        self._subjects = subjects
        self._complete = complete
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.messages: list[Msg] = []

    @property
    def subjects(self) -> Sequence[str]:
        return self._subjects

    def receive(self, message: Msg) -> None:
        self.messages.append(message)
        if not self._done.done() and (self._complete is None or self._complete(message)):
            self._done.set_result(None)

    def fail(self, error: AnchorWatchError) -> None:
        if not self._done.done():
            self._done.set_exception(error)

    def raise_failure(self) -> None:
        """Raise what the call failed with, if it did."""
        if self._done.done():
            self._done.result()

    async def settle(self, timeout_s: float) -> None:
        """Wait until the call is complete.

        Raises:
            Unavailable: it is not within ``timeout_s``; or what the call failed with.
        """
        # Cheaper than asyncio.timeout, and every publish passes here.
        timer = asyncio.get_running_loop().call_later(timeout_s, self._expire, timeout_s)
        try:
            await self._done
        finally:
            timer.cancel()

    def end(self) -> None:
        """Forget it; a failure that came too late is no one's business."""
        if not self._done.cancel() and not self._done.cancelled():
            self._done.exception()

    def _expire(self, timeout_s: float) -> None:
        self.fail(Unavailable(f"no answer to {self._subjects[-1]} within {timeout_s:g} s"))


class Waiters:
    """All who wait, by the last token of the inbox subject that their answers come to."""

    def __init__(self) -> None:
        self._tokens = itertools.count(1)
        self._waiters: dict[str, Waiter] = {}

    def token(self) -> str:
        """A token that no one else has."""
        return str(next(self._tokens))

    @contextlib.contextmanager
    def calling(
        self, subjects: Sequence[str], complete: Callable[[Msg], bool] | None
    ) -> Iterator[tuple[Call, str]]:
        """A call for the length of a ``with`` block, and its token."""
        call, token = Call(subjects, complete), self.token()
        self._waiters[token] = call
        try:
            yield call, token
        finally:
            del self._waiters[token]
            call.end()

    def add(self, waiter: Waiter) -> str:
        """Let ``waiter`` fail with the connection, as a call does, until it is removed by the token returned."""
        token = self.token()
        self._waiters[token] = waiter
        return token

    def remove(self, token: str) -> None:
        self._waiters.pop(token, None)

    def dispatch(self, message: Msg) -> None:
        """Hand an answer to whom it is for; one that nobody waits for any more is dropped."""
        waiter = self._waiters.get(message.subject.rpartition(".")[2])
        if waiter is not None:
            waiter.receive(message)

    def fail_all(self, error: AnchorWatchError) -> None:
        for waiter in list(self._waiters.values()):
            waiter.fail(error)

    def fail_subject(self, subject: str, failure: Callable[[str], AnchorWatchError]) -> bool:
        """Let all fail that sent to ``subject``; whether there was one.

        nats-py tells the subject in lower case; ``failure`` makes the error from what was really sent to.
        """
        struck = [
            (waiter, sent)
            for waiter in self._waiters.values()
            for sent in waiter.subjects
            if sent.lower() == subject
        ]
        for waiter, sent in struck:
            waiter.fail(failure(sent))
        return bool(struck)
