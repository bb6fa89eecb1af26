"""When a session is due, and which inputs ran or coalesced.

A wake-up is an accepted input as a reason for a turn. P0 and P1 wait for a short debounce window, so that related inputs share a
turn; the window keeps all of them. P2 waits for the next check. A person's trigger and a tick have no window. While the
agent's limits hold the session (`pacing`), everything but a person's input waits for them too.
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
SHOWN_INPUTS_MAX = 20
"""Inputs of one turn that a prompt shows, and that the conversation keeps when the turn has ended."""
FAMILY_CHARS_MAX = 80

Disposition = Literal["ran", "coalesced", "expired", "superseded", "refused"]
SCHEDULE_SOURCE = "schedule"
"""The source of a tick that is an occurrence of a schedule; its type is the schedule's name."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Debounce windows by priority, in milliseconds."""

    p0_ms: int
    p1_ms: int


@dataclass(frozen=True, slots=True)
class Due:
    """A turn is due."""


@dataclass(frozen=True, slots=True)
class NotBefore:
    """Check again at this instant (Unix milliseconds); ``check``: the session's own next check, not a debounce window."""

    at_ms: int
    check: bool


@dataclass(frozen=True, slots=True)
class Never:
    """Nothing is due until an order or an outcome: the session is active, paused, quarantined, deleted, or does not exist.

    An idle session is never in this state, or it would never wake again (INV-602).
    """


LONG_AGO_MS = 0
"""The check of an idle session without a next check and without a timer: at once."""


def due(state: SessionState, now_ms: int, windows: Windows, held: Held = FREE) -> Due | NotBefore | Never:
    """When the session's next turn is due. ``held``: until when limits hold it.

    A session whose next check is in the past is not `Due` by that alone: its tick must become an input first, so that
    the wake-up has a receipt; then ``NotBefore(check=True)`` holds a past instant.
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
            # It waits for a window, so that the next input shares its turn.
            at_ms = max(at_ms, wake.at_ms + windows.p1_ms)
        waits.append(at_ms)
    ready = [at for at in waits if at is not None]
    if ready and min(ready) <= now_ms:
        return Due()
    if check_ms is not None and (not ready or check_ms < min(ready)):
        return NotBefore(check_ms, check=True)
    return NotBefore(min(ready), check=False) if ready else NotBefore(LONG_AGO_MS, check=True)


def _sorted_out(pending: Iterable[Input]) -> tuple[Iterable[Input], Iterable[Input]]:
    """Representatives of the inputs: the earliest and latest of each kind and priority, and each exceptional one.

    They determine when the first is due without a calculation for every input of a burst.
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
    """Whether the accepting clock was ahead, or this clock was set back since: then it has no window."""
    return wake.at_ms > now_ms + max(windows.p0_ms, windows.p1_ms)


def _is_spent(tick: Input, anchor: Anchor, pending: Iterable[Input]) -> bool:
    """Whether a later turn has made the tick obsolete, as its id tells (docs/wire-format.md)."""
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
    """When the wake-up starts a turn. An obsolete one never does: the next turn disposes of it."""
    if wake.expires_at_ms is not None and wake.expires_at_ms < now_ms:
        return check_ms
    ready = ready_at(wake, check_ms, windows)
    if ready is None:
        return None
    return max(now_ms if _is_ahead(wake, windows, now_ms) else ready, held.until_ms(wake))


def ready_at(wake: Input, check_ms: int | None, windows: Windows) -> int | None:
    """The end of a wake-up's debounce window; None: it waits for a check, and none is due.

    A window starts with its first wake-up and is not extended by later ones: a constant trickle gets one turn for each
    window (INV-402).
    """
    if wake.kind in ("trigger", "tick", "canary"):
        return wake.at_ms
    if wake.priority == P0:
        return wake.at_ms + windows.p0_ms
    if wake.priority == P1:
        return wake.at_ms + windows.p1_ms
    return check_ms


def dispositions(inputs: Iterable[Input], started_at_ms: int) -> Sequence[tuple[Input, Disposition]]:
    """The disposition of each input of a turn: the first of a family ran, later ones coalesced, obsolete ones expired."""
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
    """The number of inputs of each family; of many families the most frequent, and the others as one number.

    Sources choose the names of events, so their number and length are bounded here.
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
    """The ``count`` inputs to show, in their order: people's messages first, then the newest.

    A burst of events must not hide a person's message.
    """
    newest_first = sorted(inputs, key=lambda each: (not _is_said(each), -each.sequence))
    return tuple(sorted(newest_first[:count], key=lambda each: each.sequence))


def _is_said(each: Input) -> bool:
    return each.kind == "message" or (each.kind == "tick" and each.source == SCHEDULE_SOURCE)
