"""The receivers of notifications: they count what arrives, answer late, ask to be left alone, break, and lose answers."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Literal

from anchorwatch.core.tools import EffectClass
from anchorwatch.service.context import ServiceContext
from anchorwatch.testing.checks import Arrivals
from anchorwatch_notifier import main as notifier
from anchorwatch_notifier.channels import Channel, NotSent
from anchorwatch_notifier.notices import KINDS, Notice
from anchorwatch_notifier.routes import Route

from tests.sim.whole.provider import is_zombie, running

Trouble = Literal["late", "busy", "broken", "lost_answer"]
TROUBLES: tuple[Trouble, ...] = ("late", "busy", "broken", "lost_answer")
HOOK, BOOK, TALK = "hook", "book", "talk"
"""A receiver that takes an id once; one that can be asked whether it arrived; one that can do neither."""
CLASSES = {HOOK: EffectClass.IDEMPOTENT, BOOK: EffectClass.RECONCILABLE, TALK: EffectClass.IRREVERSIBLE}


class Receivers:
    """All of them. ``troubles``: how likely each is, for a delivery."""

    def __init__(self, chance: random.Random, troubles: Mapping[Trouble, float]) -> None:
        self.seen: dict[str, Counter[str]] = {HOOK: Counter(), BOOK: Counter(), TALK: Counter()}
        self.troubles = dict(troubles)
        self.struck: dict[str, int] = {}
        self._chance = chance

    def calm(self) -> None:
        """Nothing goes wrong any more."""
        self.troubles.clear()

    def trouble(self) -> Trouble | None:
        for name, rate in self.troubles.items():
            if self._chance.random() < rate:
                self.struck[f"channel {name}"] = self.struck.get(f"channel {name}", 0) + 1
                return name
        return None

    def arrivals(self) -> tuple[Arrivals, ...]:
        return tuple(Arrivals(name, dict(seen), name == HOOK) for name, seen in self.seen.items())

    async def run(self, context: ServiceContext) -> None:
        """The notifier's ``run``, with these channels."""
        known = [route_of(name) for name in self.seen]
        await notifier.run(context, lambda route, _: ReceiverChannel(route.name, self), known)


class ReceiverChannel(Channel):
    """A way to one receiver."""

    def __init__(self, name: str, receivers: Receivers) -> None:
        self.effect_class = CLASSES[name]
        self.rejects_used_id = name != TALK
        self._name = name
        self._receivers = receivers

    async def send(self, delivery_id: str, notice: Notice) -> None:
        del notice
        await running()
        trouble = self._receivers.trouble()
        if self._name == TALK:
            trouble = None
        if trouble == "busy":
            raise NotSent("the receiver answered 429", wait_s=3.0)
        if trouble == "broken":
            raise NotSent("not reached")
        arrived = asyncio.get_running_loop().create_future()
        if self._name == HOOK:
            # It is on its way, whatever becomes of the sender.
            asyncio.get_running_loop().call_later(0.005, partial(self._arrive, delivery_id, arrived))
        else:
            self._arrive(delivery_id, arrived)
        await arrived
        if trouble == "late":
            await asyncio.sleep(1.0)
        await running()
        if trouble == "lost_answer" and self._name == HOOK:
            raise NotSent("no answer")

    def _arrive(self, delivery_id: str, arrived: asyncio.Future[None]) -> None:
        seen = self._receivers.seen[self._name]
        if not (self._name == BOOK and seen[delivery_id] and is_zombie()):
            seen[delivery_id] += 1
        if not arrived.done():
            arrived.set_result(None)

    async def arrived(self, delivery_id: str) -> bool | None:
        if self._name != BOOK:
            return None
        return self._receivers.seen[BOOK][delivery_id] > 0

    async def close(self) -> None:
        pass


def route_of(name: str) -> Route:
    kind: Literal["log", "webhook"] = "webhook" if name == HOOK else "log"
    return Route.model_construct(name=name, kind=kind, on=KINDS, workspace=None, session=None)
