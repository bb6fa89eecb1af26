"""Rate limits for the turns that a session starts by itself, and the backoff of a session without progress.

A limit delays and loses nothing (INV-405): held inputs wait, and one later turn consumes all of them. A person's urgent request
is never held (`hurries`, INV-407), and a running turn is not affected. Decisions depend on the anchor only, so a
restart forgets no turn, and two planners count the same.

The token bucket of ``turns_per_hour`` is stored as one instant, when it is full again: each turn moves it by an hour divided
by the rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from math import ceil
from typing import Final, Literal

from anchorwatch.core.anchor import Anchor, Pace
from anchorwatch.core.session.state import P0, Input, SessionState
from anchorwatch.core.times import from_iso, iso

HOUR_MS: Final = 3_600_000
RETRY_MS: Final = 15_000
"""Delay after the first turn without progress; it doubles after each further one."""
NO_PROGRESS_RUNS: Final = 3
"""Turns in a row without progress that raise an alarm; from then on events wait for the session's next retry."""

CLOCKS_MS_MAX: Final = 5_000
"""Largest skew between clocks of processes; an instant further ahead was written before a clock was set back."""

Why = Literal["min_interval", "turns_per_hour", "no_progress"]
_PERSONS: Final = ("trigger", "canary", "resolution")
_REFUSED: Final = ("event", "tick")


@dataclass(frozen=True, slots=True)
class Hold:
    """The reason why a session may not start a turn by itself, until an instant (Unix milliseconds)."""

    at_ms: int
    why: Why


@dataclass(frozen=True, slots=True)
class Held:
    """Until when limits hold a session, in Unix milliseconds: for P0 events, and for everything else but urgent requests.

    0: not held.
    """

    urgent_ms: int = 0
    others_ms: int = 0

    def and_until(self, hold: Hold | None) -> Held:
        """Held at least until then."""
        at_ms = hold.at_ms if hold else 0
        return Held(max(self.urgent_ms, at_ms), max(self.others_ms, at_ms))

    def until_ms(self, wake: Input) -> int:
        """When the limits allow the wake-up to start a turn."""
        if hurries(wake):
            return 0
        return self.urgent_ms if wake.priority == P0 else self.others_ms


FREE: Final = Held()


@dataclass(frozen=True, slots=True)
class Rate:
    """How often a session may start a turn by itself.

    ``turns_per_hour``: 0 is unlimited; ``burst``: turns in a row before it applies. ``min_interval_ms``: between the starts
    of two turns. ``slowest_ms``: the longest backoff of a session without progress.
    """

    turns_per_hour: int = 0
    burst: int = 1
    min_interval_ms: int = 0
    slowest_ms: int = RETRY_MS

    @property
    def counts(self) -> bool:
        """Whether a limit needs an account in the anchor."""
        return bool(self.turns_per_hour or self.min_interval_ms)

    @property
    def interval_ms(self) -> int:
        """How long the bucket takes to refill by one turn."""
        return ceil(HOUR_MS / self.turns_per_hour) if self.turns_per_hour else 0

    def hold(self, anchor: Anchor, now_ms: int, *, urgent: bool = False) -> Hold | None:
        """The limit that holds the session longest; None: not held. ``urgent``: for a P0 event.

        An account that these limits cannot have produced (a clock was set back, or the limits changed) holds nothing.
        """
        holds = [*self._limits(anchor.pace, now_ms), *self._slowed(anchor, now_ms, urgent=urgent)]
        ahead = [each for each in holds if each.at_ms > now_ms]
        return max(ahead, key=lambda each: each.at_ms, default=None)

    def hold_of(self, pace: Pace | None, now_ms: int) -> Hold | None:
        """The limit of an account that holds longest; None: none."""
        ahead = [each for each in self._limits(pace, now_ms) if each.at_ms > now_ms]
        return max(ahead, key=lambda each: each.at_ms, default=None)

    def held(self, anchor: Anchor, now_ms: int) -> Held:
        """Until when the session is held."""
        urgent, others = self.hold(anchor, now_ms, urgent=True), self.hold(anchor, now_ms)
        return Held(urgent.at_ms if urgent else 0, others.at_ms if others else 0)

    def begun(self, anchor: Anchor, now_ms: int) -> Pace | None:
        """The session's account after a turn that starts now."""
        return self.begun_after(anchor.pace, now_ms)

    def begun_after(self, pace: Pace | None, now_ms: int) -> Pace | None:
        """The account after a turn that starts now, for whatever reason. A person's turns cost at most the whole bucket."""
        if not self.counts:
            return None
        if not self.turns_per_hour:
            return Pace(started_at=iso(now_ms))
        full_ms = max(self._full_ms(pace, now_ms), now_ms) + self.interval_ms
        return Pace(started_at=iso(now_ms), full_at=iso(min(full_ms, now_ms + self.burst * self.interval_ms)))

    def spent_at(self, at_ms: int) -> Pace:
        """The account of a bucket that is empty at that instant."""
        return Pace(started_at=iso(at_ms), full_at=iso(at_ms + self.burst * self.interval_ms))

    def _limits(self, pace: Pace | None, now_ms: int) -> list[Hold]:
        if pace is None:
            return []
        started_ms = from_iso(pace.started_at)
        found = []
        if self.min_interval_ms and started_ms <= now_ms + CLOCKS_MS_MAX:
            found.append(Hold(started_ms + self.min_interval_ms, "min_interval"))
        if self.turns_per_hour:
            free_ms = self._full_ms(pace, now_ms) - (self.burst - 1) * self.interval_ms
            found.append(Hold(free_ms, "turns_per_hour"))
        return found

    def _full_ms(self, pace: Pace | None, now_ms: int) -> int:
        full_ms = from_iso(pace.full_at) if pace and pace.full_at else 0
        return full_ms if full_ms - now_ms <= self.burst * self.interval_ms + CLOCKS_MS_MAX else 0

    def _slowed(self, anchor: Anchor, now_ms: int, *, urgent: bool) -> list[Hold]:
        stuck = anchor.runs_without_progress
        if stuck < NO_PROGRESS_RUNS or anchor.last_run_timestamp is None:
            return []
        ended_ms = from_iso(anchor.last_run_timestamp)
        wait_ms = min(retry_ms(stuck - 1), RETRY_MS if urgent else self.slowest_ms)
        return [Hold(ended_ms + wait_ms, "no_progress")] if ended_ms <= now_ms + CLOCKS_MS_MAX else []


def retry_ms(stuck: int) -> int:
    """The delay before the next retry after ``stuck`` earlier turns without progress."""
    return RETRY_MS << min(stuck, 16)


def hurries(wake: Input) -> bool:
    """Whether no limit holds the input: an urgent request of a person, or the resolution of an unknown effect."""
    return wake.kind in _PERSONS or (wake.kind == "message" and wake.priority == P0)


def excess(state: SessionState, waiting_max: int) -> tuple[Input, ...]:
    """The inputs to refuse so that at most ``waiting_max`` are pending: the oldest ones, half the bound at once.

    Only events and ticks are refused, and only those before any other pending input; a person's message never is (INV-408). An
    occurrence of a schedule is refused only if the inputs after it would otherwise be unbounded.
    """
    if len(state.pending) <= waiting_max:
        return ()
    oldest = state.pending[: len(state.pending) - waiting_max // 2]
    found = tuple(takewhile(lambda wake: wake.kind in _REFUSED and not _is_occurrence(wake), oldest))
    if len(state.pending) - len(found) <= waiting_max:
        return found
    found = tuple(takewhile(lambda wake: wake.kind in _REFUSED, oldest))
    last = next((n for n in range(len(found), 0, -1) if not _is_occurrence(found[n - 1])), 0)
    return found[:last]


def _is_occurrence(wake: Input) -> bool:
    """Whether the tick is of a schedule; any other tick is the session's own."""
    return wake.kind == "tick" and bool(wake.source)
