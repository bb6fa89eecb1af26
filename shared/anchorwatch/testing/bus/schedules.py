"""Messages that the server delivers later: at most one for each schedule subject, in the stream that holds it.

What the real server does, measured: a newer schedule replaces the subject's messages; a plain message on the subject
silences the schedule; when it fires, the target's message carries two headers that say where it came from, and the
schedule itself is removed, so that a fence on its subject stands at 0 again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anchorwatch.bus.port import MESSAGE_ID_HEADER, Schedule, Stored
from anchorwatch.testing.bus.clock import SimClock, Timer
from anchorwatch.testing.bus.faults import FaultKind, Faults
from anchorwatch.testing.bus.stream import StreamStore

# The real server takes these off what it delivers.
NOT_COPIED = frozenset(
    {
        MESSAGE_ID_HEADER,
        "Nats-Expected-Last-Subject-Sequence",
        "Nats-Expected-Last-Subject-Sequence-Subject",
        "Nats-Schedule",
        "Nats-Schedule-Target",
        "Nats-TTL",
        "Nats-Rollup",
        "Nats-Batch-Id",
        "Nats-Batch-Sequence",
        "Nats-Batch-Commit",
    }
)


@dataclass(slots=True)
class _Armed:
    store: StreamStore
    stored: Stored
    schedule: Schedule
    timer: Timer


class Schedules:
    """All schedules of a server. ``running`` says whether the server is up: what falls due meanwhile waits for it."""

    def __init__(
        self, clock: SimClock, faults: Faults, running: Callable[[], bool], trace: Callable[[str], None]
    ) -> None:
        self._clock = clock
        self._faults = faults
        self._running = running
        self._trace = trace
        self._armed: dict[tuple[str, str], _Armed] = {}

    def on_written(self, store: StreamStore, stored: Stored, schedule: Schedule | None) -> None:
        """Take note of a message just stored, a schedule or not."""
        if not store.spec.schedules:
            return
        key = (store.spec.name, stored.subject)
        if (replaced := self._armed.pop(key, None)) is not None:
            replaced.timer.cancel()
        if schedule is None:
            return
        store.purge(stored.subject, stored.sequence)
        delay_s = (schedule.at_ms - self._clock.now_ms()) / 1000
        if self._faults.strikes(FaultKind.SLOW_SCHEDULE):
            delay_s = max(0.0, delay_s) + self._faults.delay_s()
        self._armed[key] = _Armed(
            store, stored, schedule, self._clock.call_later(delay_s, lambda: self._due(key, stored.sequence))
        )

    def fire_overdue(self) -> None:
        """The server is up again: what fell due meanwhile fires now."""
        now_ms = self._clock.now_ms()
        for key, armed in list(self._armed.items()):
            if armed.schedule.at_ms <= now_ms:
                self._due(key, armed.stored.sequence)

    def _due(self, key: tuple[str, str], sequence: int) -> None:
        armed = self._armed.get(key)
        if armed is None or armed.stored.sequence != sequence or not self._running():
            return
        del self._armed[key]
        armed.timer.cancel()
        armed.store.expire()
        if sequence not in armed.store.messages:
            return  # purged, or past its own time to live
        kept = {name: value for name, value in armed.stored.headers.items() if name not in NOT_COPIED}
        fired = armed.store.insert(
            armed.schedule.target,
            armed.stored.payload,
            {**kept, "Nats-Scheduler": armed.stored.subject, "Nats-Schedule-Next": "purge"},
        )
        armed.store.remove(sequence)
        self._trace(f"fired {armed.stored.subject} -> {armed.schedule.target} {fired.sequence}")
        armed.store.announce(fired)


__all__ = ["Schedules"]
