"""Disturbances beside the work: events without a subscriber, and orders that hold the session for a moment."""

from __future__ import annotations

from anchorwatch.packs.port import Stimulus
from anchorwatch.testing.crash_test.actor import Actor

EVERY = 4


async def disturb(actor: Actor, number: int) -> None:
    """Disturb the ``number``-th exercise, counted from 1."""
    match number % EVERY:
        case 1:
            await actor.send(Stimulus(source="crash-test", type="note", data={"number": number}))
        case 2:
            await actor.control("pause")
            await actor.control("resume")
        case 3:
            await actor.kill_switch(on=True)
            await actor.kill_switch(on=False)
        case _:
            await actor.schedule()
