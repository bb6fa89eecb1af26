"""Messages that nobody stores: announcements, requests and their answers."""

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
    """One subscription. As on the real bus, requests are handled side by side, announcements one after the other."""

    def __init__(self, router: Router, link: Link, subject: str, queue: str, handler: Handler) -> None:
        self.link = link
        self.subject = subject
        self.queue = queue
        self._router = router
        self._handler = handler
        self._announced: list[tuple[str, bytes]] = []
        self._hearing = False
        self._tasks: dict[asyncio.Task[None], None] = {}
        # A handler belongs to the process that listens, not to the one that asks.
        self._context = contextvars.copy_context()

    def receive(self, subject: str, payload: bytes, answer: Answer | None) -> None:
        """Take a message; tasks exist only while there is something to do, so an idle listener keeps nothing running."""
        if answer is not None:
            self._start(self._handle(subject, payload, answer))
            return
        self._announced.append((subject, payload))
        if not self._hearing:
            self._hearing = True
            self._start(self._hear())

    async def close(self) -> None:
        self.end()
        await asyncio.gather(*self._others(), return_exceptions=True)

    def end(self) -> None:
        """No more messages, and what is being handled ends here."""
        self._router.subscriptions.pop(self, None)
        self._announced.clear()
        for task in self._others():
            task.cancel()

    def _others(self) -> list[asyncio.Task[None]]:
        """The handlers at work, but for the one that calls this."""
        return [task for task in self._tasks if task is not asyncio.current_task()]

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, context=self._context.copy())
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _hear(self) -> None:
        try:
            while self._announced:
                await self._handle(*self._announced.pop(0), None)
        finally:
            self._hearing = False

    async def _handle(self, subject: str, payload: bytes, answer: Answer | None) -> None:
        try:
            await self.link.travel(0)
            reply = await self._handler(subject, payload)
        except Exception as error:  # noqa: BLE001 - reported, and whoever asked sees no answer: as on the real bus
            self._router.handler_errors.append((self.subject, error))
            return
        if reply is not None and answer is not None and self.link.connected:
            answer(reply)


class Router:
    """Who listens to what."""

    def __init__(self, faults: Faults, rng: random.Random) -> None:
        self.subscriptions: dict[SimSubscription, None] = {}
        self.handler_errors: list[tuple[str, Exception]] = []
        self._faults = faults
        self._rng = rng

    def route(self, subject: str, payload: bytes, answer: Answer | None = None) -> int:
        """Hand a message to every listener, and to one of each queue group; how many it reached."""
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
        """A client is gone, and its subscriptions with it."""
        for subscription in [each for each in self.subscriptions if each.link is link]:
            subscription.end()


__all__ = ["Answer", "Router", "SimSubscription"]
