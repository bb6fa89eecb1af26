"""Brings notices to one channel: each once, as far as the channel allows, and none at the expense of another channel.

A receiver that deduplicates is sent to first and recorded then; what a crash left open is sent again under the same id. Any
other channel is claimed first: what a crash left open is looked for where that can be done, and else is `unknown`, and not sent
again.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog
from anchorwatch.core.effect.state import Owner
from anchorwatch.core.errors import Fenced
from anchorwatch.edges import Edge, reached
from anchorwatch.journal.deliveries import Delivery, DeliveryJournal, DeliveryState, Standing
from anchorwatch.service.context import Clock, Peers
from anchorwatch.service.worker import Done, Result, RetryIn

from anchorwatch_notifier.channels import Channel, NotSent
from anchorwatch_notifier.notices import Notice
from anchorwatch_notifier.routes import Route

AT_ONCE_MAX = 32
"""To a receiver that takes what it is sent; the rest comes again after `BUSY_S`, so that it stands in no other channel's way."""
BUSY_S = 0.5
OTHERS_CLAIM_S = 1.0
BACKOFF_S_MIN, BACKOFF_S_MAX = 1.0, 300.0
GIVE_UP_S = 24 * 3600.0
CLAIM_EDGES = (Edge.NOTIFIER_CLAIM_BEFORE, Edge.NOTIFIER_CLAIM_AFTER)
END_EDGES = (Edge.NOTIFIER_DELIVERY_BEFORE, Edge.NOTIFIER_DELIVERY_AFTER)


class Sender:
    """One channel. It never waits for its receiver on behalf of others: `deliver` says when to come again."""

    def __init__(
        self,
        route: Route,
        channel: Channel,
        journal: DeliveryJournal,
        clock: Clock,
        peers: Peers,
        me: Owner,
        log: structlog.stdlib.BoundLogger,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.route = route
        self._channel = channel
        self._journal = journal
        self._clock = clock
        self._peers = peers
        self._me = me
        self._log = log.bind(channel=route.name)
        self._monotonic = monotonic
        self._failures = 0
        self._blocked_until = 0.0
        # Claims of this process under which sending began; another of its claims was never used.
        self._begun: set[str] = set()
        # One and the same may be called for by its record and by its dead letter at once.
        self._under_way: set[str] = set()

    async def deliver(self, notice: Notice, *, first: bool) -> Result:
        """Bring the delivery as far as is possible now. Done: it has ended.

        ``first``: nobody can have tried before.

        Raises:
            Unavailable: the journal is away.
        """
        id_ = notice.delivery_id(self.route.name)
        wait_s = BUSY_S if id_ in self._under_way else self._wait_s()
        if wait_s:
            return RetryIn(wait_s)
        self._under_way.add(id_)
        try:
            standing = Standing() if first else await self._journal.load(notice.ref, id_)
            return Done() if standing.ended else await self._advance(id_, notice, standing)
        except Fenced:
            # Another notifier is at it, or this one's write landed although its answer was lost.
            return RetryIn(BUSY_S)
        finally:
            self._under_way.discard(id_)

    async def close(self) -> None:
        await self._channel.close()

    def _wait_s(self) -> float:
        blocked_s = self._blocked_until - self._monotonic()
        if blocked_s > 0:
            return blocked_s
        # A receiver that failed is tried with one at a time.
        return BUSY_S if len(self._under_way) >= (1 if self._failures else AT_ONCE_MAX) else 0.0

    async def _advance(self, id_: str, notice: Notice, standing: Standing) -> Result:
        if self._channel.deduplicates:
            return await self._send(id_, notice, standing)
        if standing.unreadable:
            await self._record(
                id_, notice, standing, "unknown", f"its record at {standing.head} cannot be read"
            )
            return Done()
        claim = standing.delivery
        if claim is not None and not (claim.owner == self._me and id_ not in self._begun):
            return await self._take_up(id_, notice, standing, claim.owner)
        # Also where a claim of our own stands: what was read may be old, and hide that it was used.
        return await self._send(id_, notice, await self._record(id_, notice, standing, "claimed"))

    async def _take_up(self, id_: str, notice: Notice, standing: Standing, owner: Owner) -> Result:
        """Somebody claimed it and did not end it."""
        mine = owner.instance == self._me.instance
        if not mine and await self._peers.alive(owner.instance, owner.incarnation) not in ("dead", "gone"):
            return RetryIn(OTHERS_CLAIM_S)
        arrived = await self._channel.arrived(id_)
        if arrived is None:
            await self._record(
                id_, notice, standing, "unknown", "its sender died, and the channel cannot be asked"
            )
            return Done()
        if arrived:
            await self._record(id_, notice, standing, "sent")
            return Done()
        return await self._send(id_, notice, await self._record(id_, notice, standing, "claimed"))

    async def _send(self, id_: str, notice: Notice, standing: Standing) -> Result:
        self._begun.add(id_)
        try:
            reached(Edge.NOTIFIER_SEND_BEFORE)
            await self._channel.send(id_, notice)
            reached(Edge.NOTIFIER_SEND_AFTER)
        except NotSent as error:
            return await self._failed(id_, notice, standing, error)
        self._failures = 0
        await self._record(id_, notice, standing, "sent")
        self._begun.discard(id_)
        return Done()

    async def _failed(self, id_: str, notice: Notice, standing: Standing, error: NotSent) -> Result:
        age_s = (self._clock.now_ms() - notice.at_ms) / 1000
        if age_s > GIVE_UP_S:
            await self._record(id_, notice, standing, "failed", str(error))
            self._begun.discard(id_)
            return Done()
        self._failures += 1
        backoff_s = min(BACKOFF_S_MIN * 2.0 ** min(self._failures - 1, 20), BACKOFF_S_MAX)
        wait_s = backoff_s if error.wait_s is None else max(error.wait_s, 0.0)
        self._blocked_until = self._monotonic() + wait_s
        self._log.warning("a notification waits", id=id_, reason=str(error), wait_s=round(wait_s, 1))
        return RetryIn(wait_s)

    async def _record(
        self, id_: str, notice: Notice, standing: Standing, state: DeliveryState, error: str = ""
    ) -> Standing:
        delivery = Delivery(
            channel=self.route.name,
            channel_kind=self.route.kind,
            record=notice.sequence,
            kinds=notice.kinds,
            title=notice.title,
            state=state,
            owner=self._me,
            error=error,
        )
        before, after = CLAIM_EDGES if state == "claimed" else END_EDGES
        reached(before)
        standing = await self._journal.append(notice.ref, id_, standing, delivery, self._clock.now_ms())
        reached(after)
        return standing
