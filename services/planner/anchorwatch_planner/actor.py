"""One mailbox for each session, so that a process looks at a session once at a time and loses no cause.

Messages that arrive while the session is looked at wait, unacked and kept in progress, and are handled together
afterwards. A burst does not hold the consumer: of many waiting inputs only the newest is kept, since a look
reads at least up to it and so sees those before. Nor does a session that cannot be looked at (its pack is
missing, say): it is left alone for a while, longer each time, and of its inputs in hand only the newest comes
again; before long that is written down (`troubles`), and none has to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace

import structlog
from anchorwatch.bus.port import Delivery
from anchorwatch.core.errors import AnchorWatchError, Damaged, NewerSchema
from anchorwatch.core.names import SessionRef
from anchorwatch.edges import Edge, reached
from anchorwatch.service.keepalive import KeepAlive

from anchorwatch_planner.evidence import Cause
from anchorwatch_planner.slots import Slots
from anchorwatch_planner.troubles import Troubles
from anchorwatch_planner.verdict import Ended, Held, Later, Verdict

WAITING_MAX = 8
LINGER_S = 0.5
"""How long a session rests at the end of a turn before it is looked at behind that end, unless a message calls for it at once."""
RETRY_S, RETRY_S_MAX = 1.0, 8.0
TRIES_MAX = 8

Look = Callable[[SessionRef, list[Cause]], Awaitable[Verdict]]


@dataclass(slots=True)
class Letter:
    """A cause, and the message behind it (None: a sweep's)."""

    cause: Cause
    delivery: Delivery | None


@dataclass(frozen=True, slots=True)
class _Failed:
    """The look did not come to an end: look again after ``delay_s``, and not before. ``written``: others see to that."""

    delay_s: float
    written: bool = False


@dataclass(slots=True)
class _Box:
    """``ended``: what is in hand of turns that have ended, until a look has seen what stands behind their end."""

    waiting: list[Letter] = field(default_factory=list)
    ended: list[Letter] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    async def linger(self) -> None:
        """Wait a moment for what comes next."""
        self.news.clear()
        timer = asyncio.get_running_loop().call_later(LINGER_S, self.news.set)
        try:
            await self.news.wait()
        finally:
            timer.cancel()


class Actors:
    """The mailboxes of a process. ``look`` is called for one session at most once at a time."""

    def __init__(
        self,
        look: Look,
        log: structlog.stdlib.BoundLogger,
        in_hand: KeepAlive,
        *,
        slots: Slots,
        troubles: Troubles | None = None,
    ) -> None:
        self._look = look
        self._troubles = troubles
        self._log = log
        self._boxes: dict[SessionRef, _Box] = {}
        self._slots = slots
        self._in_hand = in_hand

    async def post(self, ref: SessionRef, cause: Cause, delivery: Delivery | None = None) -> None:
        """Hand a cause to the session's mailbox."""
        box = self._boxes.setdefault(ref, _Box())
        box.waiting.append(Letter(cause, delivery))
        box.news.set()
        if delivery is not None:
            self._in_hand.hold(delivery)
        await self._thin_out(box)
        if box.task is None:
            box.task = asyncio.create_task(self._serve(ref, box), name=f"session {ref}")

    def busy(self, ref: SessionRef) -> bool:
        return ref in self._boxes

    async def rest(self, refs: Iterable[SessionRef], timeout_s: float) -> None:
        """Wait until none of these sessions is looked at, or the time is over."""
        tasks = [box.task for ref in refs if (box := self._boxes.get(ref)) and box.task]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)

    async def close(self) -> None:
        """Stop at once. What was in hand is delivered again, to whoever comes next."""
        tasks = [box.task for box in self._boxes.values() if box.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _thin_out(self, box: _Box) -> None:
        fresh = [letter for letter in box.waiting if letter.cause.kind == "in" and letter.cause.attempt == 1]
        if len(fresh) <= WAITING_MAX:
            return
        oldest = min(fresh, key=lambda letter: letter.cause.sequence)
        box.waiting.remove(oldest)
        await self._answer([oldest], None)

    async def _serve(self, ref: SessionRef, box: _Box) -> None:
        try:
            while box.waiting or box.ended:
                if not box.waiting:
                    await box.linger()
                async with self._slots.of(ref.workspace):
                    verdict = await self._look_once(ref, box)
                if isinstance(verdict, _Failed):
                    # What comes meanwhile waits here, and is thinned out.
                    await asyncio.sleep(verdict.delay_s)
        finally:
            del self._boxes[ref]
            for letter in (*box.ended, *box.waiting):
                if letter.delivery is not None:
                    self._in_hand.drop(letter.delivery)

    async def _look_once(self, ref: SessionRef, box: _Box) -> Verdict | _Failed:
        letters, box.waiting = box.waiting, []
        before = [Letter(letter.cause.seen_to(), letter.delivery) for letter in box.ended]
        verdict = await self._look_safely(ref, [*before, *letters])
        if not isinstance(verdict, Ended):
            box.ended = []
            await self._answer([*before, *letters], verdict)
        elif letters:
            # This look has read behind the end before. Else it held what was in hand there, and holds it still.
            box.ended = letters
            await self._answer(before, None)
        return verdict

    async def _look_safely(self, ref: SessionRef, letters: list[Letter]) -> Verdict | _Failed:
        attempt = max(letter.cause.attempt for letter in letters)
        failed = _Failed(min(RETRY_S * 2.0 ** min(attempt - 1, 10), RETRY_S_MAX))
        causes = [letter.cause for letter in letters]
        try:
            return await self._look_guarded(ref, causes)
        except NewerSchema as error:
            # A planner of that release can: it comes again, to whoever is next.
            self._log.error(
                "session is left to a newer release", session=str(ref), code=error.code, why=str(error)
            )
            return failed
        except Damaged as error:
            self._log.error("session refuses to run", session=str(ref), code=error.code, why=str(error))
            # Acked, so that it holds up nobody: what it was about is in the journal, and the sweep comes back to it.
            return None
        except AnchorWatchError as error:
            self._log.warning(
                "look failed, will look again", session=str(ref), code=error.code, why=str(error)
            )
            return replace(failed, written=await self._write_down(ref, causes, error))
        except Exception as error:  # noqa: BLE001 - a fault in one session must not stop the others
            self._log.exception("look failed, will look again", session=str(ref))
            return replace(failed, written=await self._write_down(ref, causes, error))

    async def _look_guarded(self, ref: SessionRef, causes: list[Cause]) -> Verdict:
        if self._troubles is None:
            return await self._look(ref, causes)
        async with self._troubles.guard(ref) as admitted:
            verdict = await self._look(ref, causes) if admitted else None
        if admitted and verdict is None:
            await self._troubles.rested(ref)
        return verdict

    async def _write_down(self, ref: SessionRef, causes: list[Cause], error: Exception) -> bool:
        return self._troubles is not None and await self._troubles.failed(ref, causes, error)

    async def _answer(self, letters: list[Letter], verdict: Later | Held | _Failed | None) -> None:
        newest = max((letter.cause.sequence for letter in letters if letter.cause.kind == "in"), default=0)
        again = verdict.delay_s if verdict is not None else None
        if isinstance(verdict, _Failed) and verdict.written:
            again = None
        for letter in letters:
            if letter.delivery is None:
                continue
            self._in_hand.drop(letter.delivery)
            if isinstance(verdict, Held) and 0 != verdict.by == letter.cause.sequence:
                continue
            if again is None or (isinstance(verdict, _Failed) and _is_spared(letter.cause, newest)):
                reached(Edge.PLANNER_ACK_BEFORE)
                await letter.delivery.ack()
            else:
                await letter.delivery.nak(again)


def _is_spared(cause: Cause, newest: int) -> bool:
    """Whether it need not come again after a look that failed: the look that the newest input calls for sees those before it.

    One that came again before may be what a turn's planner holds; its coming is then the evidence by which another takes over.
    """
    return (
        cause.kind == "in" and cause.sequence < newest and (cause.attempt == 1 or cause.attempt > TRIES_MAX)
    )
