"""The losses of a journal: which sequences are gone, and which sessions that may concern. All who name them ask here."""

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
    """``ranges``: all that is gone (first, last), in order. ``gaps``: those at a former end, as far as a witness knows them."""

    ranges: Sequence[Range]
    gaps: Sequence[Gap] = ()

    def of(self, ref: SessionRef, begins_at: int) -> list[Range]:
        """Those that may concern a session whose first record is at ``begins_at``."""
        return [each for each in self.ranges if begins_at < each[1] and self._may_concern(ref, each)]

    def _may_concern(self, ref: SessionRef, lost: Range) -> bool:
        gap = next((each for each in self.gaps if each.first <= lost[0] and lost[1] <= each.through), None)
        return gap is None or may_have_lost(gap, ref)


def may_have_lost(gap: Gap, ref: SessionRef) -> bool:
    """Whether a record of the session may have stood in the gap: not where a witness knows each, and none was."""
    return gap.open_end or gap.unlisted > 0 or bool(gap.of_session(ref))


async def losses(bus: Bus, stream: str, *, read_all: bool = False) -> Losses:
    """What the journal has lost, by the server's own account. ``read_all``: and by reading all of it.

    A server counts what it cannot read until it is restarted; only reading tells.

    Raises:
        Unavailable. Damaged: the hold of the mesh cannot be read.
    """
    found = list(await bus.holes(stream))
    if read_all:
        found += await unread(bus, stream)
    hold = await standing_hold(bus, stream)
    return Losses(merged(found), (*hold.before, *hold.gaps))


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Ranges in order; those that touch or overlap are one."""
    found = list[Range]()
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found
