"""Maps wall-clock slots to instants in a zone whose clocks change.

The two functions are inverses: `instant_of(slot) <= now` exactly when `slot <= reached(now)`. Both
are monotonic, whatever the clocks do:

- a slot in a *gap* (the clocks skip it) occurs at the first instant after the gap;
- a slot in a *fold* (the clocks repeat it) occurs the first time only.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

SLOT_FORM = "%Y-%m-%dT%H:%M"
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def slot_text(slot: datetime) -> str:
    """A slot as ``2026-03-29T02:30``: with its zone, the identity of an occurrence."""
    return slot.strftime(SLOT_FORM)


def read_slot(text: str) -> datetime:
    """A slot from its text.

    Raises:
        ValueError: it is not a slot.
    """
    return datetime.strptime(text, SLOT_FORM)  # noqa: DTZ007 - a slot has no zone


def instant_of(slot: datetime, zone: tzinfo) -> int:
    """The instant of the slot in Unix milliseconds."""
    before, after = (_offset(slot.replace(tzinfo=zone, fold=fold)) for fold in (0, 1))
    instant = slot.replace(tzinfo=UTC) - before
    if after > before:
        instant = _change(slot.replace(tzinfo=UTC) - after, instant, zone)
    return _to_ms(instant)


def reached(now_ms: int, zone: tzinfo) -> datetime:
    """The last slot at or before ``now_ms``.

    It is the wall-clock minute; during a fold's repetition it is the last minute of the fold.
    """
    now = _EPOCH + timedelta(milliseconds=now_ms)
    local = now.astimezone(zone)
    wall = local.replace(tzinfo=None, fold=0, second=0, microsecond=0)
    if not local.fold:
        return wall
    first = _offset(local.replace(fold=0))
    changed = _change(local.replace(fold=0).astimezone(UTC), now, zone)
    end = (changed + first).replace(tzinfo=None)
    return (end - SECOND).replace(second=0, microsecond=0)


def shown(at_ms: int, zone: tzinfo) -> str:
    """An instant as the clocks of the zone show it, with their offset: ``2026-03-29T03:00:00+02:00``."""
    return (_EPOCH + timedelta(milliseconds=at_ms)).astimezone(zone).isoformat(timespec="seconds")


def _change(earlier: datetime, later: datetime, zone: tzinfo) -> datetime:
    """The first second in (earlier, later] at which the zone has the offset that it has at ``later``."""
    settled = later.astimezone(zone).utcoffset()
    low, high = 0, round((later - earlier).total_seconds())
    start = later - timedelta(seconds=high)
    while high - low > 1:
        middle = (low + high) // 2
        if (start + timedelta(seconds=middle)).astimezone(zone).utcoffset() == settled:
            high = middle
        else:
            low = middle
    return (start + timedelta(seconds=high)).replace(microsecond=0)


def _offset(moment: datetime) -> timedelta:
    return moment.utcoffset() or timedelta()


def _to_ms(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(milliseconds=1)
