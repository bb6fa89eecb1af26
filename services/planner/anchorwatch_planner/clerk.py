"""The messages about schedules: each is answered once the timetable has seen to its schedule."""

from __future__ import annotations

import asyncio

import structlog
from anchorwatch.bus.port import Delivery, Stored
from anchorwatch.core.errors import AnchorWatchError, Damaged, NewerSchema
from anchorwatch.edges import Edge, reached
from anchorwatch.service.intake import Intake
from anchorwatch.service.keepalive import KeepAlive
from anchorwatch.topology.subjects import SCHEDULE, SLOT_FIRED

from anchorwatch_planner.timetable import Timetable

BATCH = 16
RETRY_S_MAX = 8.0


class Clerk:
    """Takes the messages of schedules, several at a time."""

    def __init__(self, timetable: Timetable, in_hand: KeepAlive, log: structlog.stdlib.BoundLogger) -> None:
        self._timetable = timetable
        self._in_hand = in_hand
        self._log = log

    async def take(self, stopping: asyncio.Event, intake: Intake) -> None:
        """Take what comes until told to stop."""
        while not stopping.is_set():
            await asyncio.gather(*map(self._handle, await intake.next(BATCH)))

    async def _handle(self, delivery: Delivery) -> None:
        self._in_hand.hold(delivery)
        try:
            seen_to = await self._see_to(delivery.stored)
        finally:
            self._in_hand.drop(delivery)
        if seen_to:
            reached(Edge.PLANNER_ACK_BEFORE)
            await delivery.ack()
        else:
            await delivery.nak(min(2.0 ** min(delivery.attempt - 1, 10), RETRY_S_MAX))

    async def _see_to(self, stored: Stored) -> bool:
        """See to the schedule that a message is about; False: the message is to come again."""
        subject = stored.subject
        try:
            if (tick := SLOT_FIRED.parse(subject)) is not None:
                await self._timetable.rung(tick["workspace"], tick["name"], stored.time_ms)
            elif (changed := SCHEDULE.parse(subject)) is not None:
                await self._timetable.look(changed["workspace"], changed["name"])
        except NewerSchema as error:
            self._log.error("a schedule is left to a newer release", subject=subject, why=str(error))
            return False
        except Damaged as error:
            # It would be the same again; each sweep says so.
            self._log.error("a schedule cannot be read", subject=subject, why=str(error))
        except AnchorWatchError as error:
            self._log.warning(
                "a schedule will be looked at again", subject=subject, code=error.code, why=str(error)
            )
            return False
        except Exception:  # noqa: BLE001 - a fault in one schedule must not stop the others
            self._log.exception("a schedule will be looked at again", subject=subject)
            return False
        return True
