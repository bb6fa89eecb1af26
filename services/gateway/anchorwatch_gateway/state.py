"""What the requests of one gateway process share in memory. Nothing here is truth: a restart loses it safely."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from anchorwatch.bus.port import Bus, Stored
from anchorwatch.core.errors import AnchorWatchError, Damaged, Unavailable
from anchorwatch.core.letters import SHOWN, DeadLetter
from anchorwatch.journal.letters import DONE_TTL_S, Filed, read_letter
from anchorwatch.service.hooks import Hook
from anchorwatch.topology.streams import DEAD
from anchorwatch.topology.subjects import DEAD_LETTER
from prometheus_client import CollectorRegistry, Counter, Gauge

LIVE_STREAMS_MAX = 200
DEAD_LETTER_PAGE = 256
METHODS = frozenset({"GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS"})

T = TypeVar("T")


@dataclass(slots=True)
class HookState:
    """A hook, the workspace of its events, and its numbers since this gateway started. ``last``: the last refusal, and when."""

    hook: Hook
    workspace: str
    requests: int = 0
    events: int = 0
    refused: int = 0
    last: tuple[int, AnchorWatchError] | None = None

    def refuse(self, error: AnchorWatchError, now_ms: int) -> None:
        self.refused += 1
        self.last = (now_ms, error)


class HighWaterMark:
    """The highest journal sequence that this gateway has told any client.

    Reads of projections wait for it, so a client that was given a receipt finds it in the lists that follow.
    """

    def __init__(self) -> None:
        self.sequence = 0

    def note(self, sequence: int) -> None:
        self.sequence = max(self.sequence, sequence)


class StreamLimit:
    """Bounds the live streams that are open: each costs the server a consumer."""

    def __init__(self, open_max: int = LIVE_STREAMS_MAX) -> None:
        self._open_max = open_max
        self._open = 0

    def check(self) -> None:
        """Check that one more may open.

        Raises:
            Unavailable: the limit is reached.
        """
        if self._open >= self._open_max:
            raise Unavailable(
                f"{self._open} live streams are open, the limit is {self._open_max}",
                hint="close one, or read the timeline",
            )

    def open(self) -> None:
        self._open += 1

    def close(self) -> None:
        self._open -= 1


class SingleFlight:
    """Joins a request to an identical one that is in flight, and answers both with one result.

    Without it, a thousand requests under one key would find the first one's receipt one after the other, and the last
    ones would run into their deadline. Between processes the journal decides.
    """

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Task[object]] = {}

    async def run(self, key: Hashable, do: Callable[[], Awaitable[T]]) -> tuple[T, bool]:
        """The result of ``do``, and whether another caller had started it. Raises what ``do`` raises.

        ``key`` must hold all that makes two requests the same: subject, idempotency key and body digest.
        A started ``do`` runs to its end even if its caller is cancelled, since others may wait for it.
        """
        task = self._tasks.get(key)
        joined = task is not None
        if task is None:
            task = asyncio.ensure_future(_run(do))
            self._tasks[key] = task
            task.add_done_callback(lambda done: self._end(key, done))
        # The same key implies the same `do`, so the task has the caller's own type.
        return await asyncio.shield(task), joined  # type: ignore[arg-type]

    def _end(self, key: Hashable, done: asyncio.Task[object]) -> None:
        del self._tasks[key]
        if not done.cancelled():
            # Marks the exception as retrieved: every caller may be gone.
            done.exception()


async def _run(do: Callable[[], Awaitable[T]]) -> T:
    return await do()


class DeadLetterIndex:
    """The current dead letters by subject, updated by reading on from the last position."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._letters: dict[str, Filed] = {}
        self._through = 0

    async def refresh(self) -> None:
        """Read what was written since the last refresh.

        Raises:
            Unavailable.
        """
        while True:
            page = await self._bus.range(DEAD, DEAD_LETTER.filter(), self._through + 1, DEAD_LETTER_PAGE)
            if page.up_to < self._through:
                # The stream was recreated.
                self._letters, self._through = {}, 0
                continue
            for stored in page.messages:
                self._enter(stored)
            if not page.more:
                return

    def _enter(self, stored: Stored) -> None:
        self._through = max(self._through, stored.sequence)
        try:
            filed = read_letter(stored)
        except Damaged:
            # The next failure of its message writes it again.
            self._letters.pop(stored.subject, None)
            return
        self._letters[stored.subject] = filed

    def visible(self, now_ms: int) -> Iterator[tuple[DeadLetter, int]]:
        """The letters that people see, each with the sequence of its record."""
        for filed in self._letters.values():
            letter = filed.letter
            if letter is None or letter.state not in SHOWN:
                continue
            if letter.state != "done" or now_ms - letter.last_at_ms < DONE_TTL_S * 1000:
                yield letter, filed.head


class Counters:
    """The figures of `/metrics`. Counters grow with each request; gauges are set on each scrape."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.inputs = self._counter("inputs", "Inputs by result: accepted, replayed, conflict", "result")
        for result in ("accepted", "replayed", "conflict"):
            self.inputs.labels(result)
        self.events = self._counter("events_published", "Events published")
        self.routed = self._gauge(
            "events", "Events since an observer started, by outcome", "observer", "outcome"
        )
        self.events_bytes = self._gauge("events_bytes", "Size of the stream of events")
        self.events_bytes_max = self._gauge("events_bytes_max", "Limit of the stream of events")
        self.requests = self._counter(
            "http_requests", "Requests by route and status", "method", "route", "status"
        )
        self.lag = self._gauge(
            "consumer_lag", "Messages not yet handled, by durable consumer", "stream", "consumer"
        )
        self.sessions = self._gauge("sessions", "Sessions by status", "status")
        self.effects = self._gauge("effects", "Effects by state", "state")
        self.letters = self._gauge("dead_letters", "Dead letters by service and state", "service", "state")
        self.stuck = self._gauge(
            "runs_without_progress_max", "The most turns in a row without progress, of all sessions"
        )
        self.refused = self._gauge("inputs_refused", "Inputs refused because too many waited in a session")
        self.switches = self._gauge("kill_switches_on", "Kill switches that are on, by scope", "scope")
        self.damaged = self._gauge("damaged_records", "Damaged journal records")
        self.tokens = self._gauge(
            "model_tokens", "Tokens used by models, all sessions, since the start", "kind"
        )
        self.cost = self._gauge("model_cost", "Cost of these tokens, in the unit of the prices")
        self.behind = self._gauge("projection_lag", "Journal records that memory has not read yet")
        self.up = self._gauge("memory_up", "1 if the memory service answers")

    def count_request(self, method: str, route: str, status: int) -> None:
        """Count an answer. ``status`` 0: the client left before it, counted as 499."""
        self.requests.labels(method if method in METHODS else "other", route, str(status or 499)).inc()

    def _counter(self, name: str, help_: str, *labels: str) -> Counter:
        return Counter(f"anchorwatch_{name}", help_, labels, registry=self.registry)

    def _gauge(self, name: str, help_: str, *labels: str) -> Gauge:
        return Gauge(f"anchorwatch_{name}", help_, labels, registry=self.registry)
