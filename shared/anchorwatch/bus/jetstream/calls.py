"""The pending calls of one connection.

A call ends with its answer, with the connection, with a denial of its subject by the server, or by timeout.
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
    """A call or consumer that waits for messages."""

    @property
    def subjects(self) -> Sequence[str]:
        """The subjects that it published to: when the server denies one of them, the waiter fails."""
        ...

    def receive(self, message: Msg) -> None: ...
    def fail(self, error: AnchorWatchError) -> None: ...


class Call:
    """Waits for one answer, or for several up to the one for which ``complete`` is true."""

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
        """Raise the failure of the call, if it has failed."""
        if self._done.done():
            self._done.result()

    async def settle(self, timeout_s: float) -> None:
        """Wait until the call is complete.

        Raises:
            Unavailable: it is not complete within ``timeout_s``. Otherwise the failure of the call.
        """
        # Cheaper than asyncio.timeout; every publish waits here.
        timer = asyncio.get_running_loop().call_later(timeout_s, self._expire, timeout_s)
        try:
            await self._done
        finally:
            timer.cancel()

    def end(self) -> None:
        """End the call; a later failure is dropped."""
        if not self._done.cancel() and not self._done.cancelled():
            self._done.exception()

    def _expire(self, timeout_s: float) -> None:
        self.fail(Unavailable(f"no answer to {self._subjects[-1]} within {timeout_s:g} s"))


class Waiters:
    """All waiters, by the last token of the inbox subject of their answers."""

    def __init__(self) -> None:
        self._tokens = itertools.count(1)
        self._waiters: dict[str, Waiter] = {}

    def token(self) -> str:
        """A new token."""
        return str(next(self._tokens))

    @contextlib.contextmanager
    def open_call(
        self, subjects: Sequence[str], complete: Callable[[Msg], bool] | None
    ) -> Iterator[tuple[Call, str]]:
        """A call and its token, pending for the length of a ``with`` block."""
        call, token = Call(subjects, complete), self.token()
        self._waiters[token] = call
        try:
            yield call, token
        finally:
            del self._waiters[token]
            call.end()

    def add(self, waiter: Waiter) -> str:
        """Let ``waiter`` fail with the connection, as a call does, until `remove` of the returned token."""
        token = self.token()
        self._waiters[token] = waiter
        return token

    def remove(self, token: str) -> None:
        self._waiters.pop(token, None)

    def dispatch(self, message: Msg) -> None:
        """Pass an answer to its waiter; a late answer is dropped."""
        waiter = self._waiters.get(message.subject.rpartition(".")[2])
        if waiter is not None:
            waiter.receive(message)

    def fail_all(self, error: AnchorWatchError) -> None:
        for waiter in list(self._waiters.values()):
            waiter.fail(error)

    def fail_subject(self, subject: str, failure: Callable[[str], AnchorWatchError]) -> bool:
        """Fail every waiter that published to ``subject``; returns whether there was one.

        nats-py reports the subject in lower case; ``failure`` gets the exact one.
        """
        affected = [
            (waiter, sent)
            for waiter in self._waiters.values()
            for sent in waiter.subjects
            if sent.lower() == subject
        ]
        for waiter, sent in affected:
            waiter.fail(failure(sent))
        return bool(affected)
