"""When is a session due, and what became of each wake.

A wake is an accepted input seen as a reason to look. P0 and P1 wakes wait a short window, so that what belongs
together is looked at together; the window keeps all of them. P2 waits for the next check. A person's trigger
and a tick wait for no window. Where the agent's limits hold the session (`pacing`), what is no person's waits for them too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from anchorwatch.core.anchor import Anchor
from anchorwatch.core.session.pacing import FREE, Held
from anchorwatch.core.session.state import P0, P1, Input, SessionState
from anchorwatch.core.times import from_iso

FAMILIES_TOLD_MAX = 20
FAMILY_CHARS_MAX = 80

Disposition = Literal["ran", "coalesced", "expired", "superseded", "refused"]
SCHEDULE_SOURCE = "schedule"
"""The source of a tick that is an occurrence of a schedule; its type is the schedule's name."""


@dataclass(frozen=True, slots=True)
class Windows:
    """How long a wake waits for others, milliseconds."""

    p0_ms: int
    p1_ms: int


@dataclass(frozen=True, slots=True)
class Due:
    """It is time for a turn."""


@dataclass(frozen=True, slots=True)
class NotBefore:
    """Look again at this instant (Unix milliseconds); ``check``: it is the session's own next check, not a wake's window."""

    at_ms: int
    check: bool


@dataclass(frozen=True, slots=True)
class Never:
    """Nothing is due until somebody acts: the session is running, paused, quarantined, deleted, or not there.

    Of an idle session it is never said: nobody would look at it again.
    """


LONG_AGO_MS = 0
"""When the check of an idle session is due that has neither a next check nor a wake that comes by itself."""


def due(state: SessionState, now_ms: int, windows: Windows, held: Held = FREE) -> Due | NotBefore | Never:
    """When the session's next turn is due. ``held``: until when limits hold it.

    A session whose next check lies in the past is not `Due` by that alone: the tick that says so must be an
    input first, so that the wake has a receipt; then ``NotBefore(check=True)`` names a past instant.
    """
    anchor = state.anchor
    if anchor is None or anchor.status != "idle":
        return Never()
    check_ms = max(from_iso(anchor.next_check_at), held.others_ms) if anchor.next_check_at else None
    plain, others = _sorted_out(state.pending)
    waits = [_ready_at(wake, check_ms, windows, now_ms, held) for wake in plain]
    for wake in others:
        at_ms = _ready_at(wake, check_ms, windows, now_ms, held)
        if (
            at_ms is not None
            and _is_spent(wake, anchor, state.pending)
            and not _is_ahead(wake, windows, now_ms)
        ):
            # It waits a window, so that it is taken along by what comes next, rather than begin a turn of its own at once.
            at_ms = max(at_ms, wake.at_ms + windows.p1_ms)
        waits.append(at_ms)
    ready = [at for at in waits if at is not None]
    if ready and min(ready) <= now_ms:
        return Due()
    if check_ms is not None and (not ready or check_ms < min(ready)):
        return NotBefore(check_ms, check=True)
    return NotBefore(min(ready), check=False) if ready else NotBefore(LONG_AGO_MS, check=True)


def _sorted_out(pending: Iterable[Input]) -> tuple[Iterable[Input], Iterable[Input]]:
    """Those that tell of all when the first is due: of each kind and priority the earliest, and the latest; and each odd one.

    A look at a burst must not cost a calculation for each of its inputs.
    """
    earliest: dict[tuple[str, int], Input] = {}
    latest: dict[tuple[str, int], Input] = {}
    odd = []
    for wake in pending:
        if wake.kind == "tick" or wake.expires_at_ms is not None:
            odd.append(wake)
            continue
        key = (wake.kind, wake.priority)
        if key not in earliest:
            earliest[key] = latest[key] = wake
        elif wake.at_ms < earliest[key].at_ms:
            earliest[key] = wake
        elif wake.at_ms > latest[key].at_ms:
            latest[key] = wake
    return (*earliest.values(), *latest.values()), odd


def _is_ahead(wake: Input, windows: Windows, now_ms: int) -> bool:
    """Whether it was accepted by a clock that was ahead, or this one was set back since: then it waits for no window."""
    return wake.at_ms > now_ms + max(windows.p0_ms, windows.p1_ms)


def _is_spent(tick: Input, anchor: Anchor, pending: Iterable[Input]) -> bool:
    """Whether a turn has begun meanwhile that did what the tick was made for. Its id says that (docs/wire-format.md)."""
    if tick.kind != "tick":
        return False
    what, _, rest = tick.input_id.partition("-")
    number = rest.partition("-")[0]
    if not number.isdecimal():
        return False
    if what == "check":
        return anchor.run_id >= int(number)
    return what == "tick" and all(each.sequence != int(number) for each in pending)


def _ready_at(wake: Input, check_ms: int | None, windows: Windows, now_ms: int, held: Held) -> int | None:
    """When the wake is a reason to look. One that is out of date is none: the next turn disposes of it."""
    if wake.expires_at_ms is not None and wake.expires_at_ms < now_ms:
        return check_ms
    ready = ready_at(wake, check_ms, windows)
    if ready is None:
        return None
    return max(now_ms if _is_ahead(wake, windows, now_ms) else ready, held.until_ms(wake))


def ready_at(wake: Input, check_ms: int | None, windows: Windows) -> int | None:
    """The end of a wake's window; None: it waits for a check, and none is due.

    A window begins with the first wake that waits in it, and is not prolonged by what comes later: a constant trickle
    is looked at once in a window.
    """
    if wake.kind in ("trigger", "tick", "canary"):
        return wake.at_ms
    if wake.priority == P0:
        return wake.at_ms + windows.p0_ms
    if wake.priority == P1:
        return wake.at_ms + windows.p1_ms
    return check_ms


def dispositions(inputs: Iterable[Input], started_at_ms: int) -> Sequence[tuple[Input, Disposition]]:
    """What a turn made of each input that it took: the first of a family ran, others joined it; the outdated expired."""
    told: set[str] = set()
    result: list[tuple[Input, Disposition]] = []
    for wake in inputs:
        if wake.expires_at_ms is not None and wake.expires_at_ms < started_at_ms:
            result.append((wake, "expired"))
        elif wake.family in told:
            result.append((wake, "coalesced"))
        else:
            told.add(wake.family)
            result.append((wake, "ran"))
    return result


def tally(inputs: Iterable[Input]) -> tuple[tuple[str, int], ...]:
    """How many there are of each family, by its name; of many families the most frequent, and the others in one figure.

    What an event is called is the world's to say, so neither their number nor their names are bounded by anything else.
    """
    counts = Counter(each.family for each in inputs)
    most = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    told = sorted((_clip(family), count) for family, count in most[:FAMILIES_TOLD_MAX])
    rest = most[FAMILIES_TOLD_MAX:]
    others = [(f"{len(rest)} other kinds", sum(count for _, count in rest))] if rest else []
    return (*told, *others)


def _clip(family: str) -> str:
    return family if len(family) <= FAMILY_CHARS_MAX else f"{family[: FAMILY_CHARS_MAX - 1]}…"


def shown(inputs: Sequence[Input], count: int) -> tuple[Input, ...]:
    """The ``count`` inputs that stand for all: what people said before anything else, and the newest first; in their order.

    A burst of events must not push a person's word out of sight.
    """
    newest_first = sorted(inputs, key=lambda each: (not _is_said(each), -each.sequence))
    return tuple(sorted(newest_first[:count], key=lambda each: each.sequence))


def _is_said(each: Input) -> bool:
    return each.kind == "message" or (each.kind == "tick" and each.source == SCHEDULE_SOURCE)
