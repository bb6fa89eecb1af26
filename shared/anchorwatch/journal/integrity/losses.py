"""The gaps of a journal, and the sessions that they may concern; every report of gaps uses this module."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from anchorwatch.bus.port import Bus
from anchorwatch.core.names import SessionRef
from anchorwatch.journal.heads import unread
from anchorwatch.journal.truncation import Gap, standing_hold

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Losses:
    """``ranges``: the lost sequences (first, last), in order. ``gaps``: those at a former end, as a witness knows them."""

    ranges: Sequence[Range]
    gaps: Sequence[Gap] = ()

    def of(self, ref: SessionRef, begins_at: int) -> list[Range]:
        """The ranges that may concern a session whose first record is at ``begins_at``."""
        return [each for each in self.ranges if begins_at < each[1] and self._may_concern(ref, each)]

    def _may_concern(self, ref: SessionRef, lost: Range) -> bool:
        gap = next((each for each in self.gaps if each.first <= lost[0] and lost[1] <= each.through), None)
        return gap is None or may_have_lost(gap, ref)


def may_have_lost(gap: Gap, ref: SessionRef) -> bool:
    """Whether the gap may contain a record of the session: not if a witness knows each record, and none is of the session."""
    return gap.open_end or gap.unlisted > 0 or bool(gap.of_session(ref))


async def losses(bus: Bus, stream: str, *, read_all: bool = False) -> Losses:
    """The losses that the server reports; with ``read_all``, also those that only a full read of the journal shows.

    Until its restart, a server counts messages that it cannot read.

    Raises:
        Unavailable. Damaged: the hold of the mesh cannot be read.
    """
    found = list(await bus.holes(stream))
    if read_all:
        found += await unread(bus, stream)
    hold = await standing_hold(bus, stream)
    return Losses(merged(found), (*hold.before, *hold.gaps))


def merged(ranges: Iterable[Range]) -> list[Range]:
    """The ranges in order, with adjacent and overlapping ones merged."""
    found = list[Range]()
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found
