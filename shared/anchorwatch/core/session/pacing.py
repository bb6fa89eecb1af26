"""How often a session begins turns by itself: the agent's limits, and the slowing down of one that makes no progress.

A limit delays, and loses nothing: what is held waits, and one later turn takes all of it. What a person wants at once is never
held (`hurries`), and nothing here concerns a turn that runs. All that is decided on stands in the anchor, so that a
restart forgets no turn, and of two planners both count the same.

The bucket of ``turns_per_hour`` is kept as one instant, that at which it is full again: a turn moves it on by an hour divided by
the rate.
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
"""After the first turn without progress the next one waits so long, and twice as long after each further one."""
NO_PROGRESS_RUNS: Final = 3
"""So many turns in a row without progress are an alarm; from then on events wait as long as the session's own next try."""

CLOCKS_MS_MAX: Final = 5_000
"""The clocks of processes may be this far apart; what lies further ahead was written before a clock was set back."""

Why = Literal["min_interval", "turns_per_hour", "no_progress"]
_PERSONS: Final = ("trigger", "canary", "resolution")
_REFUSED: Final = ("event", "tick")


@dataclass(frozen=True, slots=True)
class Hold:
    """What keeps a session from beginning a turn by itself, until an instant (Unix milliseconds)."""

    at_ms: int
    why: Why


@dataclass(frozen=True, slots=True)
class Held:
    """Until when limits hold a session, Unix milliseconds: for events of P0, and for all else that no person wants at once.

    0: nothing is held.
    """

    urgent_ms: int = 0
    others_ms: int = 0

    def and_until(self, hold: Hold | None) -> Held:
        """Held at least so long."""
        at_ms = hold.at_ms if hold else 0
        return Held(max(self.urgent_ms, at_ms), max(self.others_ms, at_ms))

    def until_ms(self, wake: Input) -> int:
        """When the limits let the wake begin a turn."""
        if hurries(wake):
            return 0
        return self.urgent_ms if wake.priority == P0 else self.others_ms


FREE: Final = Held()


@dataclass(frozen=True, slots=True)
class Rate:
    """How often a session may begin a turn by itself.

    ``turns_per_hour``: 0 is no bound; ``burst``: so many may begin one after the other before it counts. ``min_interval_ms``:
    between the beginnings of two turns. ``slowest_ms``: the longest that a session without progress waits.
    """

    turns_per_hour: int = 0
    burst: int = 1
    min_interval_ms: int = 0
    slowest_ms: int = RETRY_MS

    @property
    def counts(self) -> bool:
        """Whether there is a limit of which the anchor must keep account."""
        return bool(self.turns_per_hour or self.min_interval_ms)

    @property
    def interval_ms(self) -> int:
        """How long the bucket takes to earn one turn."""
        return ceil(HOUR_MS / self.turns_per_hour) if self.turns_per_hour else 0

    def hold(self, anchor: Anchor, now_ms: int, *, urgent: bool = False) -> Hold | None:
        """What holds the session now, the longest; None: nothing does. ``urgent``: for an event of P0.

        An account that these limits cannot have led to, since a clock was set back or the limits were changed, holds nothing.
        """
        holds = [*self._limits(anchor.pace, now_ms), *self._slowed(anchor, now_ms, urgent=urgent)]
        ahead = [each for each in holds if each.at_ms > now_ms]
        return max(ahead, key=lambda each: each.at_ms, default=None)

    def hold_of(self, pace: Pace | None, now_ms: int) -> Hold | None:
        """What an account holds by itself, the longest; None: nothing."""
        ahead = [each for each in self._limits(pace, now_ms) if each.at_ms > now_ms]
        return max(ahead, key=lambda each: each.at_ms, default=None)

    def held(self, anchor: Anchor, now_ms: int) -> Held:
        """Until when the session is held."""
        urgent, others = self.hold(anchor, now_ms, urgent=True), self.hold(anchor, now_ms)
        return Held(urgent.at_ms if urgent else 0, others.at_ms if others else 0)

    def begun(self, anchor: Anchor, now_ms: int) -> Pace | None:
        """The session's account after a turn that begins now."""
        return self.begun_after(anchor.pace, now_ms)

    def begun_after(self, pace: Pace | None, now_ms: int) -> Pace | None:
        """The account after a turn that begins now, whoever wanted it. A person's turns cost no more than the whole bucket."""
        if not self.counts:
            return None
        if not self.turns_per_hour:
            return Pace(started_at=iso(now_ms))
        full_ms = max(self._full_ms(pace, now_ms), now_ms) + self.interval_ms
        return Pace(started_at=iso(now_ms), full_at=iso(min(full_ms, now_ms + self.burst * self.interval_ms)))

    def spent_at(self, at_ms: int) -> Pace:
        """The account of a bucket that was empty at that instant."""
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
    """How long the try after a turn without progress waits, where ``stuck`` came before that one."""
    return RETRY_MS << min(stuck, 16)


def hurries(wake: Input) -> bool:
    """Whether no limit holds it: a person wants it at once, or found out what the session waits for."""
    return wake.kind in _PERSONS or (wake.kind == "message" and wake.priority == P0)


def excess(state: SessionState, waiting_max: int) -> tuple[Input, ...]:
    """What is to be refused so that no more than ``waiting_max`` inputs wait: the oldest, and of these half a bound at once.

    Only events and ticks are, and only those before whatever else waits: a person's word is never refused. An occurrence of a
    schedule is only where all that waits behind it would else be kept without bound.
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
    """Whether it is of a schedule; any other tick is the session's own."""
    return wake.kind == "tick" and bool(wake.source)
