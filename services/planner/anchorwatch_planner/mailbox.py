"""One mailbox for each session, so that a process looks at a session once at a time and loses no cause.

Causes that arrive during a look wait, with their messages in hand, and are handled together afterwards. A burst does not hold
the consumer: of many waiting inputs only the newest is kept, since a look reads at least up to it and so sees those before.
Nor does a session whose looks fail (its pack is missing, say): it rests for a while, longer each time, and of its inputs in
hand only the newest comes again. After a few failures the session gets a dead letter (`troubles`), and none has to.

Looks of all sessions share the process's slots, workspace by workspace (`slots`): no session or workspace waits for another's
burst.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import structlog
from anchorwatch.core.errors import AnchorWatchError, Damaged, NewerSchema
from anchorwatch.core.names import SessionRef
from anchorwatch.core.times import backoff_s
from anchorwatch.service.worker import Done, NoAnswer, Result, RetryIn

from anchorwatch_planner.evidence import Cause
from anchorwatch_planner.slots import Slots
from anchorwatch_planner.troubles import Troubles
from anchorwatch_planner.verdict import Ended, Held, Verdict

WAITING_MAX = 8
LINGER_S = 0.5
"""How long a session rests at the end of a turn before it is looked at again, unless a message calls for that at once."""
RETRY_S, RETRY_S_MAX = 1.0, 8.0
TRIES_MAX = 8

Look = Callable[[SessionRef, list[Cause]], Awaitable[Verdict]]
Answer = Result | NoAnswer


@dataclass(frozen=True, slots=True)
class Posted:
    """A cause, and where its message is answered (None: it has no message)."""

    cause: Cause
    answer: asyncio.Future[Answer] | None = None

    def settle(self, answer: Answer) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(answer)


@dataclass(frozen=True, slots=True)
class _Failed:
    """The look failed: look again after ``delay_s``, and not before. ``written``: in a dead letter, which brings it again."""

    delay_s: float
    written: bool = False


@dataclass(slots=True)
class _Mailbox:
    """``ended``: the causes of turns that have ended, until a look has read past that end."""

    waiting: list[Posted] = field(default_factory=list)
    ended: list[Posted] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    async def linger(self) -> None:
        """Wait a moment for the next cause."""
        self.news.clear()
        timer = asyncio.get_running_loop().call_later(LINGER_S, self.news.set)
        try:
            await self.news.wait()
        finally:
            timer.cancel()


class Mailboxes:
    """The mailboxes of a process. ``look`` is called for one session at most once at a time."""

    def __init__(
        self,
        look: Look,
        log: structlog.stdlib.BoundLogger,
        *,
        slots: Slots,
        random: Random,
        troubles: Troubles | None = None,
    ) -> None:
        self._look = look
        self._troubles = troubles
        self._log = log
        self._random = random
        self._boxes: dict[SessionRef, _Mailbox] = {}
        self._slots = slots

    def post(self, ref: SessionRef, cause: Cause) -> None:
        """Have the session looked at."""
        self._put(ref, Posted(cause))

    async def handle(self, ref: SessionRef, cause: Cause) -> Answer:
        """Have the session looked at for a message; returns what becomes of the message."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._put(ref, Posted(cause, answer))
        return await answer

    def busy(self, ref: SessionRef) -> bool:
        return ref in self._boxes

    async def rest(self, refs: Iterable[SessionRef], timeout_s: float) -> None:
        """Wait until none of these sessions is looked at, or the time is over."""
        tasks = [box.task for ref in refs if (box := self._boxes.get(ref)) and box.task]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)

    async def close(self) -> None:
        """Stop at once. What is in hand is delivered again, to another planner."""
        tasks = [box.task for box in self._boxes.values() if box.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _put(self, ref: SessionRef, posted: Posted) -> None:
        box = self._boxes.setdefault(ref, _Mailbox())
        box.waiting.append(posted)
        box.news.set()
        fresh = [each for each in box.waiting if each.cause.kind == "in" and each.cause.attempt == 1]
        if len(fresh) > WAITING_MAX:
            oldest = min(fresh, key=lambda each: each.cause.sequence)
            box.waiting.remove(oldest)
            oldest.settle(Done())
        if box.task is None:
            box.task = asyncio.create_task(self._serve(ref, box), name=f"session {ref}")

    async def _serve(self, ref: SessionRef, box: _Mailbox) -> None:
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
            for posted in (*box.ended, *box.waiting):
                posted.settle(NoAnswer())

    async def _look_once(self, ref: SessionRef, box: _Mailbox) -> Verdict | _Failed:
        arrived, box.waiting = box.waiting, []
        before = [replace(posted, cause=posted.cause.seen_to()) for posted in box.ended]
        verdict = await self._look_safely(ref, [posted.cause for posted in (*before, *arrived)])
        if not isinstance(verdict, Ended):
            box.ended = []
            _settle([*before, *arrived], verdict)
        elif arrived:
            # This look has read past the end before. Else it held what was in hand there, and holds it still.
            box.ended = arrived
            _settle(before, Done())
        return verdict

    async def _look_safely(self, ref: SessionRef, causes: list[Cause]) -> Verdict | _Failed:
        attempt = max(cause.attempt for cause in causes)
        failed = _Failed(backoff_s(attempt, RETRY_S, RETRY_S_MAX, self._random.random()))
        try:
            return await self._look_guarded(ref, causes)
        except NewerSchema as error:
            # A planner of that release can look: the message comes again.
            self._log.error(
                "session.left_to_newer_release", session=str(ref), code=error.code, reason=str(error)
            )
            return failed
        except Damaged as error:
            self._log.error("session.damaged", session=str(ref), code=error.code, reason=str(error))
            # Acked, so that it delays no other: its cause is in the journal, and the sweep comes back to the session.
            return Done()
        except AnchorWatchError as error:
            self._log.warning("look.failed", session=str(ref), code=error.code, reason=str(error))
            return replace(failed, written=await self._write_down(ref, causes, error))
        except Exception as error:  # noqa: BLE001 - a fault in one session must not stop the others
            self._log.exception("look.failed", session=str(ref))
            return replace(failed, written=await self._write_down(ref, causes, error))

    async def _look_guarded(self, ref: SessionRef, causes: list[Cause]) -> Verdict:
        if self._troubles is None:
            return await self._look(ref, causes)
        async with self._troubles.guard(ref) as admitted:
            verdict = await self._look(ref, causes) if admitted else Done()
        if admitted and isinstance(verdict, Done):
            await self._troubles.rested(ref)
        return verdict

    async def _write_down(self, ref: SessionRef, causes: list[Cause], error: Exception) -> bool:
        return self._troubles is not None and await self._troubles.failed(ref, causes, error)


def _settle(posted: Sequence[Posted], verdict: Result | Held | _Failed) -> None:
    newest = max((each.cause.sequence for each in posted if each.cause.kind == "in"), default=0)
    for each in posted:
        each.settle(_answer(each.cause, verdict, newest))


def _answer(cause: Cause, verdict: Result | Held | _Failed, newest: int) -> Answer:
    match verdict:
        case Done() | RetryIn():
            return verdict
        case Held(by=by) if 0 != by == cause.sequence:
            return NoAnswer()
        case Held(delay_s=delay_s):
            return Done() if delay_s is None else RetryIn(delay_s)
        case _Failed(delay_s, written):
            return Done() if written or _is_spared(cause, newest) else RetryIn(delay_s)


def _is_spared(cause: Cause, newest: int) -> bool:
    """Whether it need not come again after a look that failed: the look that the newest input calls for sees those before it.

    One that came again before may be what a turn's planner holds; its coming is then the evidence by which another takes over.
    """
    return (
        cause.kind == "in" and cause.sequence < newest and (cause.attempt == 1 or cause.attempt > TRIES_MAX)
    )
