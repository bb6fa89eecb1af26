"""Finds sessions that nobody is watching: idle ones with something pending or no schedule, active ones whose planner is gone.

Each planner sweeps when it starts, so that what its former self held is taken up at once, and then one of them
does, by a lease. The turns that it holds itself each of them sweeps.
"""

from __future__ import annotations

from collections.abc import Sequence

from anchorwatch.bus.port import Bus
from anchorwatch.core.names import SessionRef
from anchorwatch.topology.streams import ANCHORS_BUCKET

from anchorwatch_planner.evidence import Cause
from anchorwatch_planner.mailbox import Mailboxes

AT_ONCE = 4
REST_S_MAX = 0.25


async def sessions_known(bus: Bus) -> list[SessionRef]:
    """Every session, from the view: one that is too new to stand there has just woken a planner by itself.

    Raises:
        Unavailable: the bus is away.
    """
    bucket = await bus.bucket(ANCHORS_BUCKET)
    refs = []
    for key in await bucket.keys():
        workspace, _, session = key.partition(".")
        refs.append(SessionRef(workspace, session))
    return sorted(refs)


async def sweep(refs: Sequence[SessionRef], mailboxes: Mailboxes, *, starting: bool) -> int:
    """Have each of these sessions looked at that is not being looked at already; returns how many.

    ``starting``: this process has just come, and what its former self had in hand is not on its way to anybody.
    """
    swept = 0
    for start in range(0, len(refs), AT_ONCE):
        # Few at once: what wakes a session meanwhile must not stand behind all the others.
        posted = [ref for ref in refs[start : start + AT_ONCE] if not mailboxes.busy(ref)]
        for ref in posted:
            mailboxes.post(ref, Cause("start" if starting else "sweep"))
        await mailboxes.rest(posted, REST_S_MAX)
        swept += len(posted)
    return swept
