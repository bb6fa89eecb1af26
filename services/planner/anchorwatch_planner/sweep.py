"""Passes over sessions that no message wakes: idle ones with pending inputs or no timer, active ones whose planner is gone.

Each planner sweeps all sessions when it starts, so that it continues what its earlier incarnation held. Then one planner does,
by a lease. Each planner sweeps the sessions whose turn it holds, and those with a dead letter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from anchorwatch.bus.port import Bus
from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.core.names import SessionRef
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.leases import Leases
from anchorwatch.topology.streams import ANCHORS_BUCKET

from anchorwatch_planner.failures import SessionFailures
from anchorwatch_planner.mailbox import Mailboxes
from anchorwatch_planner.schedules import ScheduleRunner
from anchorwatch_planner.sessions import StateCache
from anchorwatch_planner.takeover import Cause

AT_ONCE = 4
WAIT_S_MAX = 0.25


async def sweep_for_ever(
    context: ServiceContext,
    mailboxes: Mailboxes,
    failures: SessionFailures,
    cache: StateCache,
    schedules: ScheduleRunner,
) -> None:
    """Sweep sessions and schedules every ``sweep_s``, until cancelled."""
    monotonic = asyncio.get_running_loop().time
    leases = Leases(context.bus, context.identity, context.settings.lease_s, monotonic=monotonic)
    first = True
    while True:
        try:
            await failures.refresh()
            for ref in failures.known():
                if not mailboxes.busy(ref):
                    mailboxes.post(ref, Cause("retry"))
            # No other planner continues these turns, and their wake-up may have gone to a planner that released them.
            await sweep(cache.held(), mailboxes, starting=False)
            if first or await leases.hold("sweep"):
                refs = await sessions_known(context.bus)
                await schedules.sweep(sorted({ref.workspace for ref in refs}))
                await sweep(refs, mailboxes, starting=first)
            first = False
        except AnchorWatchError as error:
            context.log.warning("sweep.failed", code=error.code, reason=str(error))
        await context.clock.sleep(context.settings.sweep_s)


async def sweep_all(bus: Bus, mailboxes: Mailboxes) -> None:
    """Make a pass over every session now.

    Raises:
        Unavailable: the bus is not available.
    """
    await sweep(await sessions_known(bus), mailboxes, starting=True)


async def sessions_known(bus: Bus) -> list[SessionRef]:
    """Every session in the anchor view. One that is too new to be there has just woken a planner itself.

    Raises:
        Unavailable: the bus is not available.
    """
    bucket = await bus.bucket(ANCHORS_BUCKET)
    refs = []
    for key in await bucket.keys():
        workspace, _, session = key.partition(".")
        refs.append(SessionRef(workspace, session))
    return sorted(refs)


async def sweep(refs: Sequence[SessionRef], mailboxes: Mailboxes, *, starting: bool) -> int:
    """Make a pass over each of these sessions that has none at the moment; returns their number.

    ``starting``: this process has just started, so the messages of its earlier incarnation are not on their way to a planner.
    """
    swept = 0
    for start in range(0, len(refs), AT_ONCE):
        # Few at once: a wake-up that arrives meanwhile must not wait for the whole sweep.
        posted = [ref for ref in refs[start : start + AT_ONCE] if not mailboxes.busy(ref)]
        for ref in posted:
            mailboxes.post(ref, Cause("start" if starting else "sweep"))
        await mailboxes.wait_for(posted, WAIT_S_MAX)
        swept += len(posted)
    return swept
