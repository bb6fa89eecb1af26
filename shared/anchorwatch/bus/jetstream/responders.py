"""Subscriptions: handlers for requests and announcements."""

from __future__ import annotations

import asyncio
import contextlib

from nats.aio.msg import Msg

from anchorwatch.bus.jetstream.link import Link
from anchorwatch.bus.port import Handler
from anchorwatch.core.errors import AnchorWatchError

CONCURRENT_MAX = 64
QUEUED_MAX = 4096


class Responder:
    """A subscription. Requests are handled concurrently, at most `CONCURRENT_MAX`; announcements in order, one by one.

    Messages above `QUEUED_MAX` are dropped and reported: a slow handler must not fill the memory.
    """

    def __init__(self, link: Link, handler: Handler) -> None:
        self._link = link
        self._handler = handler
        self._token: str | None = None
        self._requests: asyncio.Queue[Msg] = asyncio.Queue(QUEUED_MAX)
        self._announcements: asyncio.Queue[Msg] = asyncio.Queue(QUEUED_MAX)
        self._workers: list[asyncio.Task[None]] = []
        self._idle = 0

    async def open(self, subject: str, queue: str) -> None:
        self._token = await self._link.listen(subject, self._receive, queue)

    async def close(self) -> None:
        if self._token is not None:
            await self._link.unlisten(self._token)
            self._token = None
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        self._workers.clear()

    def _receive(self, message: Msg) -> None:
        queue = self._requests if message.reply else self._announcements
        try:
            queue.put_nowait(message)
        except asyncio.QueueFull:
            self._link.report(f"{message.subject}: the handler is too slow; a message was dropped")
            return
        if not self._workers:
            self._workers.append(asyncio.create_task(self._work(self._announcements)))
        if message.reply and self._requests.qsize() > self._idle and len(self._workers) <= CONCURRENT_MAX:
            self._workers.append(asyncio.create_task(self._work(self._requests)))

    async def _work(self, queue: asyncio.Queue[Msg]) -> None:
        while True:
            self._idle += queue is self._requests
            try:
                message = await queue.get()
            finally:
                self._idle -= queue is self._requests
            await self._handle(message)

    async def _handle(self, message: Msg) -> None:
        try:
            answer = await self._handler(message.subject, message.data)
        except Exception as error:  # noqa: BLE001 - one bad message must not end the service; the caller gets no answer
            self._link.report(f"{message.subject}: the handler failed: {type(error).__name__}: {error}")
            return
        if answer is not None and message.reply:
            with contextlib.suppress(AnchorWatchError):
                await self._link.send(message.reply, answer)
