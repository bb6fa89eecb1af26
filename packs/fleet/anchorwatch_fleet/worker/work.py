"""The work of a worker: warm up, take jobs, prove, store each result once, and report."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from anchorwatch.packs import (
    AnchorWatchError,
    Bus,
    Consumer,
    Delivery,
    Expect,
    Message,
    NotFound,
    StreamMissing,
    Unavailable,
    WrongLastSequence,
)

from anchorwatch_fleet.instances import Report
from anchorwatch_fleet.jobs import Job, Result, decode_job, encode_result, make_job, prove
from anchorwatch_fleet.subjects import REPORT, RESULT, RESULTS, WORK

WARM_UP_S = 1.0
REPORT_EVERY_S = 1.0
STILL_WORKING_EVERY_S = 1.5
FETCH_S_MAX = 0.5
RETRY_S = 0.3
RATE_OVER_JOBS = 20
ERROR_CHARS_MAX = 200

_T = TypeVar("_T")
log = logging.getLogger("worker")


def run(instance: str, epoch: int) -> None:
    """Work until SIGTERM. The yard passes the address of the bus in the environment."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    asyncio.run(_main(instance, epoch))
    logging.shutdown()
    # A proof in its thread would delay the exit; its job was returned to the queue.
    os._exit(0)


async def _main(instance: str, epoch: int) -> None:
    from anchorwatch.packs import connect  # noqa: PLC0415 - the birth is recorded before this slow import

    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    bus = await connect(
        os.environ["ANCHORWATCH_NATS_URL"],
        user=os.environ.get("ANCHORWATCH_NATS_USER"),
        password=os.environ.get("ANCHORWATCH_NATS_PASSWORD"),
        name=f"worker {instance}",
    )
    try:
        await Worker(bus, instance, epoch, stopping).run()
    finally:
        await bus.close()


@dataclass
class Worker:
    """One worker. ``rate_ph``: proofs per hour of work, measured over the last jobs; initially over the warm-up."""

    bus: Bus
    instance: str
    epoch: int
    stopping: asyncio.Event
    warm_up_s: float = WARM_UP_S
    state: Literal["loading", "running"] = "loading"
    jobs_done: int = 0
    job: str | None = None
    job_done_at_ms: int | None = None
    last_error: str = ""
    _seconds: deque[float] = field(default_factory=lambda: deque(maxlen=RATE_OVER_JOBS))

    @property
    def rate_ph(self) -> float | None:
        return round(3600 * len(self._seconds) / sum(self._seconds), 1) if self._seconds else None

    async def run(self) -> None:
        """Warm up, then work until a stop request."""
        reporting = asyncio.create_task(self._report_always())
        try:
            self._seconds.extend(await asyncio.to_thread(warm_up, self.warm_up_s))
            self.state = "running"
            log.info("running, warm after %d proofs", len(self._seconds))
            await self._report()
            await self._work()
        finally:
            reporting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reporting

    # ------------------------------------------------------------ reports

    async def _report_always(self) -> None:
        while True:
            await self._report()
            await asyncio.sleep(REPORT_EVERY_S)

    async def _report(self) -> None:
        report = Report(
            self.instance,
            self.epoch,
            self.state,
            jobs_done=self.jobs_done,
            rate_ph=self.rate_ph,
            job=self.job,
            job_done_at_ms=self.job_done_at_ms,
            last_error=self.last_error,
        )
        # A lost report is repeated in a second.
        with contextlib.suppress(Unavailable):
            await self.bus.announce(REPORT.at(instance=self.instance), report.encode())

    # ------------------------------------------------------------ jobs

    async def _work(self) -> None:
        consumer: Consumer | None = None
        while not self.stopping.is_set():
            try:
                if consumer is None:
                    consumer = await self.bus.consumer(WORK)
                for delivery in await consumer.fetch(1, FETCH_S_MAX):
                    await self._take(delivery)
            except (Unavailable, NotFound) as error:
                self._note_error(error)
                if isinstance(error, NotFound):
                    consumer = None
                await asyncio.sleep(RETRY_S)
        if consumer is not None:
            await consumer.close()

    async def _take(self, delivery: Delivery) -> None:
        """Finish one job; on a stop request, return it to the queue."""
        self.job = delivery.stored.subject.rpartition(".")[2]
        async with _saying_still_working(delivery):
            doing = asyncio.create_task(self._do(self.job, delivery))
            told = asyncio.create_task(self.stopping.wait())
            await asyncio.wait({doing, told}, return_when=asyncio.FIRST_COMPLETED)
            told.cancel()
            if doing.done():
                doing.result()
                await delivery.ack()
            else:
                doing.cancel()
                await delivery.nak()
        self.job = None

    async def _do(self, job_id: str, delivery: Delivery) -> None:
        if await self._has_result(job_id):
            log.info("%s has its result already", job_id)
            return
        begun = time.monotonic()
        result = await self._prove(job_id, delivery)
        if await self._store(result):
            seconds = time.monotonic() - begun
            self._seconds.append(seconds)
            self.jobs_done += 1
            self.job_done_at_ms = time.time_ns() // 1_000_000
            log.info("%s done in %.3f s", job_id, seconds)
        else:
            log.info("%s: another worker's result came first", job_id)

    async def _prove(self, job_id: str, delivery: Delivery) -> Result:
        begun = time.monotonic()
        try:
            job = decode_job(delivery.stored.payload)
            if delivery.attempt == 1:
                _misbehave(job)
            certificate = await asyncio.to_thread(prove, job)
        except AnchorWatchError as error:
            # No worker could do it: a result with an error ends the job; a retry would never end.
            self._note_error(error)
            return Result(job_id, None, self.instance, time.monotonic() - begun, str(error)[:ERROR_CHARS_MAX])
        return Result(job_id, certificate, self.instance, time.monotonic() - begun)

    async def _has_result(self, job_id: str) -> bool:
        page = await self._persist(lambda: self.bus.last(RESULTS, [RESULT.at(job_id=job_id)]))
        return bool(page.messages)

    async def _store(self, result: Result) -> bool:
        """Store a result unless the job has one: each job has at most one result."""
        subject = RESULT.at(job_id=result.job_id)
        message = Message(subject, encode_result(result), expect=Expect(subject, 0))
        while True:
            try:
                await self._persist(lambda: self.bus.publish(message))
            except WrongLastSequence:
                page = await self._persist(lambda: self.bus.last(RESULTS, [subject]))
                if page.messages:
                    # It is ours if an earlier attempt was stored and its answer was lost.
                    return page.messages[0].payload == message.payload
            else:
                return True

    async def _persist(self, attempt: Callable[[], Awaitable[_T]]) -> _T:
        """Retry while the bus is unreachable."""
        while True:
            try:
                return await attempt()
            except (Unavailable, StreamMissing) as error:
                self._note_error(error)
                await asyncio.sleep(RETRY_S)

    def _note_error(self, error: Exception) -> None:
        self.last_error = str(error)[:ERROR_CHARS_MAX]
        log.warning("%s", self.last_error)


@contextlib.asynccontextmanager
async def _saying_still_working(delivery: Delivery) -> AsyncIterator[None]:
    async def say() -> None:
        while True:
            await asyncio.sleep(STILL_WORKING_EVERY_S)
            await delivery.in_progress()

    saying = asyncio.create_task(say())
    try:
        yield
    finally:
        saying.cancel()


def _misbehave(job: Job) -> None:
    """Misbehave as the job says, to test the fleet."""
    if job.fault == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if job.fault == "hang":
        # The whole process hangs: it reports nothing, and only SIGKILL ends it.
        os.kill(os.getpid(), signal.SIGSTOP)


def warm_up(seconds: float) -> list[float]:
    """Prove primes for about ``seconds`` of wall clock, to measure the worker's speed; returns the duration of each proof."""
    took: list[float] = []
    begun = time.monotonic()
    while not took or time.monotonic() - begun < seconds:
        before = time.monotonic()
        prove(make_job(f"warm-up-{len(took)}"))
        took.append(time.monotonic() - before)
    return took[-RATE_OVER_JOBS:]
