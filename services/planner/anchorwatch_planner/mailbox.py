"""One mailbox for each session, so that a process makes one pass over a session at a time and loses no cause.

Causes that arrive during a pass wait, with their messages unanswered, and are handled together afterwards. A burst does not hold
the consumer: of many waiting inputs only the newest are kept, since a pass reads up to the newest and so sees the others. Nor
does a session whose passes fail (its pack is missing, say): it waits for a while, longer each time, and of its unanswered inputs
only the newest is delivered again. After a few failures the session gets a dead letter (`failures`), and its messages are acked.

The passes over all sessions share the slots of the process fairly by workspace.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import structlog
from anchorwatch.core.errors import AnchorWatchError, Damaged, NewerSchema
from anchorwatch.core.names import SessionRef
from anchorwatch.core.times import backoff_s
from anchorwatch.service.worker import Done, NoAnswer, Result, RetryIn

from anchorwatch_planner.failures import SessionFailures
from anchorwatch_planner.takeover import Cause, LeftToHolder
from anchorwatch_planner.turn import PassResult, TurnEnded

WAITING_MAX = 8
LINGER_S = 0.5
"""How long a session rests after a turn before the next pass, unless a message arrives earlier."""
RETRY_S, RETRY_S_MAX = 1.0, 8.0
TRIES_MAX = 8

Plan = Callable[[SessionRef, list[Cause]], Awaitable[PassResult]]
Answer = Result | NoAnswer


@dataclass(frozen=True, slots=True)
class Posted:
    """A cause, and the answer to its message (None: it has no message)."""

    cause: Cause
    answer: asyncio.Future[Answer] | None = None

    def settle(self, answer: Answer) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(answer)


@dataclass(frozen=True, slots=True)
class _Failed:
    """The pass failed: the next one is after ``delay_s``. ``written``: in a dead letter, which causes further passes."""

    delay_s: float
    written: bool = False


@dataclass(slots=True)
class _Mailbox:
    """``ended``: the causes of turns that have ended, until a pass has read past that end."""

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
    """The mailboxes of a process. ``plan`` makes one pass, for each session at most one at a time."""

    def __init__(
        self,
        plan: Plan,
        log: structlog.stdlib.BoundLogger,
        *,
        slots: FairSemaphore,
        random: Random,
        failures: SessionFailures | None = None,
    ) -> None:
        self._plan = plan
        self._failures = failures
        self._log = log
        self._random = random
        self._boxes: dict[SessionRef, _Mailbox] = {}
        self._slots = slots

    def post(self, ref: SessionRef, cause: Cause) -> None:
        """Make a pass over the session."""
        self._put(ref, Posted(cause))

    async def handle(self, ref: SessionRef, cause: Cause) -> Answer:
        """Make a pass over the session for a message; returns the answer to the message."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._put(ref, Posted(cause, answer))
        return await answer

    def busy(self, ref: SessionRef) -> bool:
        return ref in self._boxes

    async def wait_for(self, refs: Iterable[SessionRef], timeout_s: float) -> None:
        """Wait until there is no pass over any of these sessions, at most ``timeout_s``."""
        tasks = [box.task for ref in refs if (box := self._boxes.get(ref)) and box.task]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)

    async def close(self) -> None:
        """Stop at once. Unanswered messages are delivered again, to another planner."""
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
                    result = await self._pass_once(ref, box)
                if isinstance(result, _Failed):
                    # Causes that arrive meanwhile wait in the mailbox.
                    await asyncio.sleep(result.delay_s)
        finally:
            del self._boxes[ref]
            for posted in (*box.ended, *box.waiting):
                posted.settle(NoAnswer())

    async def _pass_once(self, ref: SessionRef, box: _Mailbox) -> PassResult | _Failed:
        arrived, box.waiting = box.waiting, []
        before = [replace(posted, cause=posted.cause.after_turn()) for posted in box.ended]
        result = await self._pass_safely(ref, [posted.cause for posted in (*before, *arrived)])
        if not isinstance(result, TurnEnded):
            box.ended = []
            _settle([*before, *arrived], result)
        elif arrived:
            # This pass has read past the end of the earlier turn. Without new causes, its messages stay unanswered.
            box.ended = arrived
            _settle(before, Done())
        return result

    async def _pass_safely(self, ref: SessionRef, causes: list[Cause]) -> PassResult | _Failed:
        attempt = max(cause.attempt for cause in causes)
        failed = _Failed(backoff_s(attempt, RETRY_S, RETRY_S_MAX, self._random.random()))
        try:
            return await self._pass_guarded(ref, causes)
        except NewerSchema as error:
            # A planner of that release can plan it: the message is delivered again.
            self._log.error(
                "session.left_to_newer_release", session=str(ref), code=error.code, reason=str(error)
            )
            return failed
        except Damaged as error:
            self._log.error("session.damaged", session=str(ref), code=error.code, reason=str(error))
            # Acked, so that it delays no other message: the cause is in the journal, and the sweep returns to the session.
            return Done()
        except AnchorWatchError as error:
            self._log.warning("session.failed", session=str(ref), code=error.code, reason=str(error))
            return replace(failed, written=await self._write_down(ref, causes, error))
        except Exception as error:  # noqa: BLE001 - a fault in one session must not stop the others
            self._log.exception("session.failed", session=str(ref))
            return replace(failed, written=await self._write_down(ref, causes, error))

    async def _pass_guarded(self, ref: SessionRef, causes: list[Cause]) -> PassResult:
        if self._failures is None:
            return await self._plan(ref, causes)
        async with self._failures.guard(ref) as admitted:
            result = await self._plan(ref, causes) if admitted else Done()
        if admitted and isinstance(result, Done):
            await self._failures.succeeded(ref)
        return result

    async def _write_down(self, ref: SessionRef, causes: list[Cause], error: Exception) -> bool:
        return self._failures is not None and await self._failures.failed(ref, causes, error)


def _settle(posted: Sequence[Posted], result: Result | LeftToHolder | _Failed) -> None:
    newest = max((each.cause.sequence for each in posted if each.cause.kind == "in"), default=0)
    for each in posted:
        each.settle(_answer(each.cause, result, newest))


def _answer(cause: Cause, result: Result | LeftToHolder | _Failed, newest: int) -> Answer:
    match result:
        case Done() | RetryIn():
            return result
        case LeftToHolder(by=by) if 0 != by == cause.sequence:
            return NoAnswer()
        case LeftToHolder(delay_s=delay_s):
            return Done() if delay_s is None else RetryIn(delay_s)
        case _Failed(delay_s, written):
            return Done() if written or _is_spared(cause, newest) else RetryIn(delay_s)


def _is_spared(cause: Cause, newest: int) -> bool:
    """Whether it need not be delivered again after a failed pass: the pass for the newest input sees all earlier ones.

    A message that was redelivered may be the one that a turn's holder has; its redelivery is the evidence for a takeover.
    """
    return (
        cause.kind == "in" and cause.sequence < newest and (cause.attempt == 1 or cause.attempt > TRIES_MAX)
    )


class FairSemaphore:
    """``total`` slots, of which one workspace holds at most ``share``. Waiting workspaces are served in turn."""

    def __init__(self, total: int, share: int) -> None:
        self._free = total
        self._share = share
        self._held: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @contextlib.asynccontextmanager
    async def of(self, workspace: str) -> AsyncIterator[None]:
        """Wait for a slot, and hold it during the block."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(workspace, deque()).append(turn)
        self._serve()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave(workspace)
            raise
        try:
            yield
        finally:
            self._leave(workspace)

    def _leave(self, workspace: str) -> None:
        self._free += 1
        self._held[workspace] -= 1
        if not self._held[workspace]:
            del self._held[workspace]
        self._serve()

    def _serve(self) -> None:
        while self._free and (workspace := self._next()) is not None:
            queue = self._waiting.pop(workspace)
            turn = queue.popleft()
            if queue:
                # After the other workspaces.
                self._waiting[workspace] = queue
            if not turn.done():
                self._free -= 1
                self._held[workspace] += 1
                turn.set_result(None)

    def _next(self) -> str | None:
        return next((each for each in self._waiting if self._held[each] < self._share), None)
