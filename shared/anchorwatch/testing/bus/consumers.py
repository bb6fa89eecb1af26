"""Consumers on the server: their deliveries, acks and redeliveries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from anchorwatch.bus.port import ConsumerSpec, ConsumerState, Stored
from anchorwatch.core.errors import BadInput, NotFound
from anchorwatch.testing.bus.clock import RESOLUTION_S, SimClock, Timer
from anchorwatch.testing.bus.compare import check_consumer
from anchorwatch.testing.bus.faults import FaultKind, Faults
from anchorwatch.testing.bus.stream import StreamStore, overlap
from anchorwatch.topology.subjects import matches


@dataclass(frozen=True, slots=True)
class Handed:
    """One delivery of a message; ``attempt`` counts its deliveries, this one included."""

    stored: Stored
    attempt: int


@dataclass(slots=True)
class _Pending:
    """A message that was delivered and not acked; it is delivered again at ``due_s``."""

    stored: Stored
    order: int
    attempt: int
    due_s: float
    naks: int = 0
    acked: bool = False
    duplicated: bool = False


@dataclass(slots=True, eq=False)
class Pull:
    """A fetch that waits at the server until ``expires_s``."""

    limit: int
    expires_s: float
    future: asyncio.Future[list[Handed]] = field(repr=False)

    def orphan(self) -> None:
        """Detach the caller, which the server does not notice."""
        self.future = asyncio.get_running_loop().create_future()
        # Retrieves the failure of a deleted consumer: the future has no other reader.
        self.future.add_done_callback(lambda done: done.cancelled() or done.exception())


class ConsumerDeleted(Exception):
    """The consumer was deleted while a pull waits."""


class ConsumerCore:
    """One consumer on the server. Times are in the clock's seconds."""

    def __init__(
        self,
        name: str,
        spec: ConsumerSpec,
        store: StreamStore,
        clock: SimClock,
        faults: Faults,
        trace: Callable[[str], None],
    ) -> None:
        self.name = name
        self.spec = spec
        self.deleted = False
        self._store = store
        self._clock = clock
        self._faults = faults
        self._trace = trace
        self._cursor = self._start()
        self._pending: dict[int, _Pending] = {}
        self._held: dict[str, float] = {}
        self._pulls: dict[Pull, None] = {}
        self._wanted: dict[str, bool] = {}
        self._orders = 0
        self._naks = 0
        self._delivered = self._floor = self._cursor - 1
        self._floor_order = 0
        self._timer: Timer | None = None

    # Pulling.

    def pull(self, limit: int, timeout_s: float) -> Pull:
        """Request up to ``limit`` messages; the future gets them as soon as there is one."""
        pull = Pull(limit, self._clock.now_s() + timeout_s, asyncio.get_running_loop().create_future())
        self._pulls[pull] = None
        self.dispatch()
        return pull

    def drop(self, pull: Pull) -> None:
        """Remove a pull whose caller has stopped waiting."""
        self._pulls.pop(pull, None)
        self._arm()

    def change_filters(self, filters: tuple[str, ...]) -> None:
        """Deliver other subjects from now on. Pending messages stay pending."""
        self.spec = replace(self.spec, filters=filters)
        self._wanted.clear()

    def on_stored(self, stored: Stored) -> None:
        if self._pulls and self._wants(stored.subject):
            self.dispatch()

    def on_removed(self, sequence: int) -> None:
        """A removed message needs no ack."""
        pending = self._pending.get(sequence)
        if pending is not None:
            self._forget(pending)

    def dispatch(self) -> None:
        """Deliver the available messages to the waiting pulls, first come, first served."""
        while self._pulls:
            pull = next(iter(self._pulls))
            if pull.future.done() or self._clock.now_s() > pull.expires_s + RESOLUTION_S:
                del self._pulls[pull]
                continue
            handed = self._take(pull.limit)
            if not handed:
                break
            del self._pulls[pull]
            pull.future.set_result(handed)
        self._arm()

    def delete(self) -> None:
        self.deleted = True
        for pull in self._pulls:
            if not pull.future.done():
                pull.future.set_exception(ConsumerDeleted())
        self._pulls.clear()
        self._arm()

    # Acks. A late ack of an old delivery counts like any other.

    def ack(self, sequence: int) -> None:
        pending = self._pending.get(sequence)
        if pending is None or pending.attempt == 0:
            return
        pending.acked = True
        if self._store.spec.work_queue:
            self._store.remove(sequence)  # which settles it
        elif not pending.duplicated or self._clock.reached(pending.due_s):
            self._forget(pending)
        # Otherwise it is delivered once more, in spite of the ack.
        self.dispatch()

    def nak(self, sequence: int, delay_s: float) -> None:
        if (pending := self._pending.get(sequence)) is not None:
            self._naks += 1
            pending.naks = self._naks
        self._postpone(sequence, delay_s)
        self.dispatch()

    def in_progress(self, sequence: int) -> None:
        self._postpone(sequence, self.spec.ack_wait_s)
        self._arm()

    # State.

    def state(self) -> ConsumerState:
        waiting = sum(1 for pending in self._pending.values() if pending.attempt == 0)
        return ConsumerState(
            delivered_sequence=self._delivered,
            ack_floor_sequence=self._floor,
            ack_pending=len(self._pending) - waiting,
            pending=self._store.count(self.spec.filters or (">",), self._cursor) + waiting,
        )

    # Delivery.

    def _start(self) -> int:
        """The first sequence to deliver."""
        state = self._store.state()
        first = max(1, state.first_sequence)
        if self.spec.start_sequence is not None:
            return max(self.spec.start_sequence, first)
        if self.spec.start_time_ms is not None:
            later = (
                stored.sequence
                for stored in self._store.messages.values()
                if stored.time_ms >= self.spec.start_time_ms
            )
            return next(later, state.last_sequence + 1)
        return first

    def _wants(self, subject: str) -> bool:
        wanted = self._wanted.get(subject)
        if wanted is None:
            filters = self.spec.filters
            wanted = self._wanted[subject] = not filters or any(matches(each, subject) for each in filters)
        return wanted

    def _take(self, limit: int) -> list[Handed]:
        self._store.expire()
        now_s = self._clock.now_s()
        taken = [pending for pending in self._pending.values() if self._clock.reached(pending.due_s)]
        # Naked messages come in the order of their naks, unacked ones by sequence.
        taken.sort(key=lambda pending: (pending.due_s, pending.naks, pending.stored.sequence))
        del taken[limit:]
        while len(taken) < limit and len(self._pending) < self.spec.ack_pending_max:
            fresh = self._next(now_s)
            if fresh is None:
                break
            if self._clock.reached(fresh.due_s):
                taken.append(fresh)
        handed = [self._hand(pending, now_s) for pending in taken]
        if len(handed) > 1 and self._faults.strikes(FaultKind.REORDERED_DELIVERY):
            handed = _reordered(handed, self._faults)
        return handed

    def _next(self, now_s: float) -> _Pending | None:
        """The next message that was never delivered; a delayed one is due later."""
        while self._cursor <= self._store.last_sequence:
            stored = self._store.messages.get(self._cursor)
            self._cursor += 1
            if stored is not None and self._wants(stored.subject):
                break
        else:
            return None
        self._orders += 1
        self._delivered = stored.sequence
        pending = _Pending(stored, self._orders, 0, self._held_until(stored.subject, now_s))
        self._pending[stored.sequence] = pending
        return pending

    def _held_until(self, subject: str, now_s: float) -> float:
        """When a message of this subject may be delivered: a delayed message delays its successors."""
        held_s = self._held.get(subject, now_s)
        if held_s <= now_s:
            self._held.pop(subject, None)
            if not self._faults.strikes(FaultKind.DELAYED_DELIVERY):
                return now_s
            held_s = self._held[subject] = now_s + self._faults.delay_s()
        return held_s

    def _hand(self, pending: _Pending, now_s: float) -> Handed:
        pending.attempt += 1
        pending.acked = pending.duplicated = False
        pending.due_s = now_s + self.spec.ack_wait_s
        if self._faults.strikes(FaultKind.DUPLICATE_DELIVERY):
            pending.duplicated = True
            pending.due_s = min(pending.due_s, now_s + self._faults.delay_s())
        self._trace(f"deliver {self.name} {pending.stored.sequence} attempt {pending.attempt}")
        return Handed(pending.stored, pending.attempt)

    def _postpone(self, sequence: int, delay_s: float) -> None:
        pending = self._pending.get(sequence)
        if pending is not None and pending.attempt > 0 and not pending.acked:
            pending.due_s = self._clock.now_s() + delay_s

    def _forget(self, pending: _Pending) -> None:
        """Settle a message, and move the floor when it was the oldest open one."""
        del self._pending[pending.stored.sequence]
        if not self._pending:
            self._floor, self._floor_order = self._delivered, self._orders
        elif pending.order == self._floor_order + 1:
            oldest = min(self._pending.values(), key=lambda each: each.order)
            self._floor, self._floor_order = oldest.stored.sequence - 1, oldest.order - 1

    def _arm(self) -> None:
        """Set the timer of the next redelivery, but only while a pull waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pulls and self._pending:
            due_s = min(pending.due_s for pending in self._pending.values())
            self._timer = self._clock.call_later(due_s - self._clock.now_s(), self.dispatch)


def _reordered(handed: list[Handed], faults: Faults) -> list[Handed]:
    """Shuffle, but keep the order within each subject."""
    places = [each.stored.subject for each in handed]
    faults.rng.shuffle(places)
    queues: dict[str, list[Handed]] = {}
    for each in handed:
        queues.setdefault(each.stored.subject, []).append(each)
    return [queues[subject].pop(0) for subject in places]


class Consumers:
    """The consumers of a server, by stream and name. ``stream`` returns a stream or raises `StreamMissing`."""

    def __init__(
        self,
        stream: Callable[[str], StreamStore],
        clock: SimClock,
        faults: Faults,
        trace: Callable[[str], None],
    ) -> None:
        self._stream = stream
        self._clock = clock
        self._faults = faults
        self._trace = trace
        self._cores: dict[tuple[str, str], ConsumerCore] = {}
        self._ephemerals = 0

    def ensure(self, spec: ConsumerSpec) -> str:
        """Make the consumer or find the durable one; returns its name.

        Raises:
            StreamMissing: the stream does not exist.
            ConfigDiffers: it exists with other filters or another ack wait.
            BadInput: another consumer of a work queue has some of the subjects.
        """
        store = self._stream(spec.stream)
        name = spec.durable
        if name is None:
            self._ephemerals += 1
            name = f"ephemeral-{self._ephemerals}"
        existing = self.find(spec.stream, name)
        if existing is not None:
            if spec.filters_before and set(existing.spec.filters) == set(spec.filters_before):
                existing.change_filters(spec.filters)
            check_consumer(name, existing.spec, spec)
            return name
        if store.spec.work_queue:
            self._check_alone(spec)
        core = ConsumerCore(name, spec, store, self._clock, self._faults, self._trace)
        self._cores[spec.stream, name] = core
        store.on_stored.append(core.on_stored)
        store.on_removed.append(core.on_removed)
        return name

    def find(self, stream: str, name: str) -> ConsumerCore | None:
        return self._cores.get((stream, name))

    def get(self, stream: str, name: str) -> ConsumerCore:
        """The consumer ``name`` of ``stream``.

        Raises:
            NotFound: it does not exist, or was deleted.
        """
        core = self.find(stream, name)
        if core is None:
            raise NotFound(f"consumer {name} of {stream} does not exist")
        return core

    def delete(self, stream: str, name: str) -> None:
        """Delete it; waiting fetches fail.

        Raises:
            NotFound: the consumer does not exist.
        """
        core = self.get(stream, name)
        del self._cores[stream, name]
        store = self._stream(stream)
        store.on_stored.remove(core.on_stored)
        store.on_removed.remove(core.on_removed)
        core.delete()

    def states(self, stream: str) -> dict[str, ConsumerState]:
        """The state of each durable consumer of the stream.

        Raises:
            StreamMissing: the stream does not exist.
        """
        self._stream(stream)
        return {
            core.name: core.state()
            for core in self._cores.values()
            if core.spec.stream == stream and core.spec.durable is not None
        }

    def _check_alone(self, spec: ConsumerSpec) -> None:
        for other in self._cores.values():
            if other.spec.stream == spec.stream and any(
                overlap(mine, theirs)
                for mine in spec.filters or (">",)
                for theirs in other.spec.filters or (">",)
            ):
                raise BadInput(f"consumer {other.name} already has subjects of this work queue")


__all__ = ["ConsumerCore", "ConsumerDeleted", "Consumers", "Handed", "Pull"]
