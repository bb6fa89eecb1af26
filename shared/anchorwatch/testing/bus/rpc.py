"""Messages that are not stored: announcements, requests and their answers."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Coroutine

from anchorwatch.bus.port import Handler
from anchorwatch.testing.bus.faults import FaultKind, Faults
from anchorwatch.testing.bus.link import Link
from anchorwatch.topology.subjects import matches

Answer = Callable[[bytes], None]


class SimSubscription:
    """One subscription. As on the real bus, requests are handled concurrently, announcements one after the other."""

    def __init__(self, router: Router, link: Link, subject: str, queue: str, handler: Handler) -> None:
        self.link = link
        self.subject = subject
        self.queue = queue
        self._router = router
        self._handler = handler
        self._announced: list[tuple[str, bytes]] = []
        self._draining = False
        self._tasks: dict[asyncio.Task[None], None] = {}
        # A handler belongs to the subscriber's process, not to the caller's.
        self._context = contextvars.copy_context()

    def receive(self, subject: str, payload: bytes, answer: Answer | None) -> None:
        """Handle a message. Tasks exist only while there is work: an idle subscription keeps no task running."""
        if answer is not None:
            self._start(self._handle(subject, payload, answer))
            return
        self._announced.append((subject, payload))
        if not self._draining:
            self._draining = True
            self._start(self._drain())

    async def close(self) -> None:
        self.end()
        await asyncio.gather(*self._others(), return_exceptions=True)

    def end(self) -> None:
        """Stop receiving, and cancel the handlers that run."""
        self._router.subscriptions.pop(self, None)
        self._announced.clear()
        for task in self._others():
            task.cancel()

    def _others(self) -> list[asyncio.Task[None]]:
        """The running handlers, without the calling one."""
        return [task for task in self._tasks if task is not asyncio.current_task()]

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, context=self._context.copy())
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _drain(self) -> None:
        try:
            while self._announced:
                await self._handle(*self._announced.pop(0), None)
        finally:
            self._draining = False

    async def _handle(self, subject: str, payload: bytes, answer: Answer | None) -> None:
        try:
            await self.link.travel(0)
            reply = await self._handler(subject, payload)
        except Exception as error:  # noqa: BLE001 - reported; the caller gets no answer, as on the real bus
            self._router.handler_errors.append((self.subject, error))
            return
        if reply is not None and answer is not None and self.link.connected:
            answer(reply)


class Router:
    """The subscriptions of all clients."""

    def __init__(self, faults: Faults, rng: random.Random) -> None:
        self.subscriptions: dict[SimSubscription, None] = {}
        self.handler_errors: list[tuple[str, Exception]] = []
        self._faults = faults
        self._rng = rng

    def route(self, subject: str, payload: bytes, answer: Answer | None = None) -> int:
        """Pass a message to every subscription, and to one of each queue group; returns the number that it matched."""
        groups: dict[str, list[SimSubscription]] = {}
        chosen: list[SimSubscription] = []
        for subscription in self.subscriptions:
            if subscription.link.connected and matches(subscription.subject, subject):
                if subscription.queue:
                    groups.setdefault(subscription.queue, []).append(subscription)
                else:
                    chosen.append(subscription)
        chosen.extend(self._rng.choice(group) for group in groups.values())
        for subscription in chosen:
            if not self._faults.strikes(FaultKind.LOST_ANNOUNCEMENT):
                subscription.receive(subject, payload, answer)
        return len(chosen)

    def drop(self, link: Link) -> None:
        """End the subscriptions of a client that was closed or killed."""
        for subscription in [each for each in self.subscriptions if each.link is link]:
            subscription.end()


__all__ = ["Answer", "Router", "SimSubscription"]
