"""Delivers notices to one channel: each once, as far as the channel allows, without delaying other channels.

A delivery is an effect, and `next_action` decides its next step, as for a command. A webhook is idempotent: its receiver
takes an id once, so it needs no claim, as a read needs none. A file is reconcilable: a claim left open is settled by looking for
the id. A log is irreversible: a claim left open is `unknown`, and not sent again.
"""

from __future__ import annotations

from dataclasses import replace

from anchorwatch.core.effect.decide import (
    Action,
    ClaimAgain,
    Judge,
    MarkUnknown,
    Nothing,
    Wait,
    after_reconcile,
    next_action,
)
from anchorwatch.core.effect.state import EffectState, Owner
from anchorwatch.core.errors import Fenced
from anchorwatch.core.times import backoff_s
from anchorwatch.core.tools import EffectClass
from anchorwatch.edges import Edge, reached
from anchorwatch.journal.deliveries import Delivery, DeliveryJournal, DeliveryState
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.worker import Done, Result, RetryIn

from anchorwatch_notifier.channels import Channel, NotSent
from anchorwatch_notifier.notices import Notice
from anchorwatch_notifier.routes import Route

AT_ONCE_MAX = 32
"""To a receiver that takes what it is sent. The rest comes again after `BUSY_S`, so that it delays no other channel."""
BUSY_S = 0.5
OTHERS_CLAIM_S = 1.0
BACKOFF_S_MIN, BACKOFF_S_MAX = 1.0, 300.0
HINT_S_MAX = 3600.0
"""How long a receiver may ask to be left alone."""
GIVE_UP_S = 24 * 3600.0
CLAIM_EDGES = (Edge.NOTIFIER_CLAIM_BEFORE, Edge.NOTIFIER_CLAIM_AFTER)
END_EDGES = (Edge.NOTIFIER_DELIVERY_BEFORE, Edge.NOTIFIER_DELIVERY_AFTER)


class Sender:
    """One channel. It never waits for its receiver on behalf of others: `deliver` says when to come again."""

    def __init__(
        self,
        context: ServiceContext,
        route: Route,
        channel: Channel,
        journal: DeliveryJournal,
    ) -> None:
        self.route = route
        self._channel = channel
        self._journal = journal
        self._clock = context.clock
        self._peers = context.peers
        self._me = Owner(context.identity.instance, context.identity.incarnation)
        self._log = context.log.bind(channel=route.name)
        self._random = context.random
        self._failures = 0
        self._blocked_until = 0.0
        # The deliveries that this process began to send and did not end.
        self._begun: set[str] = set()
        # The deliveries in flight. A record and its dead letter may both call for one.
        self._in_flight: set[str] = set()

    async def deliver(self, notice: Notice, *, first: bool) -> Result:
        """Bring the delivery as far as is possible now. Done: it has ended. ``first``: no process can have begun it before.

        Raises:
            Unavailable: the journal is away. NewerSchema: a newer release can read what it says of the delivery.
        """
        id_ = notice.delivery_id(self.route.name)
        wait_s = BUSY_S if id_ in self._in_flight else self._wait_s()
        if wait_s:
            return RetryIn(wait_s)
        self._in_flight.add(id_)
        try:
            state = EffectState() if first else await self._journal.load(notice.ref, id_)
            return await self._advance(id_, notice, state)
        except Fenced:
            # Another notifier is at it, or a write of this one landed although its answer was lost.
            return RetryIn(BUSY_S)
        finally:
            self._in_flight.discard(id_)

    async def close(self) -> None:
        await self._channel.close()

    def _wait_s(self) -> float:
        blocked_s = self._blocked_until - self._clock.elapsed_s()
        if blocked_s > 0:
            return blocked_s
        # A receiver that failed is tried with one at a time.
        return BUSY_S if len(self._in_flight) >= (1 if self._failures else AT_ONCE_MAX) else 0.0

    async def _advance(self, id_: str, notice: Notice, state: EffectState) -> Result:
        match await self._next(id_, state):
            case Nothing():
                return Done()
            case Wait():
                return RetryIn(OTHERS_CLAIM_S)
            case MarkUnknown(reason):
                await self._record(id_, notice, state, "unknown", reason)
                return Done()
            case Judge(claim=False):
                return await self._send(id_, notice, state)
            case Judge() | ClaimAgain(then="run"):
                return await self._send(id_, notice, await self._record(id_, notice, state, "claimed"))
            case ClaimAgain(doubt=doubt):
                claimed = await self._record(id_, notice, state, "claimed", doubt=doubt)
                return await self._reconcile(id_, notice, claimed)

    async def _next(self, id_: str, state: EffectState) -> Action:
        effect_class, claim = self._channel.effect_class, state.claim
        if effect_class is EffectClass.IDEMPOTENT:
            effect_class = EffectClass.READ
        if claim is not None and claim.owner == self._me and id_ not in self._begun:
            # Nothing was sent under it: its answer was lost. Or what was read is old: then the next claim is fenced.
            first_claim = 0 if claim.sequence == state.first_claim else state.first_claim
            state, claim = replace(state, claim=None, first_claim=first_claim), None
        if claim is None:
            return next_action(state, effect_class, self._me, "unknown")
        if claim.owner == self._me:
            # It began here and has not ended: as if this process had died then.
            return next_action(state, effect_class, Owner(self._me.instance, ""), "dead")
        liveness = await self._peers.alive(claim.owner.instance, claim.owner.incarnation)
        return next_action(state, effect_class, self._me, liveness)

    async def _reconcile(self, id_: str, notice: Notice, state: EffectState) -> Result:
        """Ask the receiver about a delivery that a process began and did not end."""
        self._begun.add(id_)
        arrived = await self._channel.arrived(id_)
        found = after_reconcile(
            "unknown" if arrived is None else "done" if arrived else "not_done",
            rejects_used_key=self._channel.rejects_used_id,
            settled=True,
            doubt=state.doubt,
        )
        match found:
            case "record":
                await self._end(id_, notice, state, "sent")
            case "run":
                return await self._send(id_, notice, state)
            case "unknown" | "wait":
                await self._end(
                    id_, notice, state, "unknown", "its sender died, and the receiver cannot tell"
                )
        return Done()

    async def _send(self, id_: str, notice: Notice, state: EffectState) -> Result:
        self._begun.add(id_)
        try:
            reached(Edge.NOTIFIER_SEND_BEFORE)
            await self._channel.send(id_, notice)
            reached(Edge.NOTIFIER_SEND_AFTER)
        except NotSent as error:
            return await self._failed(id_, notice, state, error)
        self._failures = 0
        await self._end(id_, notice, state, "sent")
        return Done()

    async def _failed(self, id_: str, notice: Notice, state: EffectState, error: NotSent) -> Result:
        age_s = (self._clock.now_ms() - notice.at_ms) / 1000
        if age_s > GIVE_UP_S:
            await self._end(id_, notice, state, "failed", str(error))
            return Done()
        self._failures += 1
        # What the receiver asks for may lengthen the wait, and never shortens it.
        hint_s = min(error.wait_s or 0.0, HINT_S_MAX)
        wait_s = max(backoff_s(self._failures, BACKOFF_S_MIN, BACKOFF_S_MAX, self._random.random()), hint_s)
        self._blocked_until = self._clock.elapsed_s() + wait_s
        self._log.warning("delivery.waits", id=id_, reason=str(error), wait_s=round(wait_s, 1))
        return RetryIn(wait_s)

    async def _end(
        self, id_: str, notice: Notice, state: EffectState, ended: DeliveryState, error: str = ""
    ) -> None:
        await self._record(id_, notice, state, ended, error)
        self._begun.discard(id_)

    async def _record(
        self,
        id_: str,
        notice: Notice,
        state: EffectState,
        delivery_state: DeliveryState,
        error: str = "",
        *,
        doubt: bool = False,
    ) -> EffectState:
        delivery = Delivery(
            channel=self.route.name,
            channel_kind=self.route.kind,
            record=notice.sequence,
            kinds=notice.kinds,
            title=notice.title,
            state=delivery_state,
            owner=self._me,
            error=error,
            doubt=doubt,
        )
        before, after = CLAIM_EDGES if delivery_state == "claimed" else END_EDGES
        reached(before)
        state = await self._journal.append(notice.ref, id_, state, delivery, self._clock.now_ms())
        reached(after)
        return state
