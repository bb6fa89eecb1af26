"""What happens to any agent beside its work: events that concern nobody, and people who hold it up for a moment."""

from __future__ import annotations

from anchorwatch.packs.port import Stimulus
from anchorwatch.testing.crash_test.actor import Actor

EVERY = 4


async def disturb(actor: Actor, number: int) -> None:
    """Beside the ``number``-th exercise, from 1."""
    match number % EVERY:
        case 1:
            await actor.tell(Stimulus(source="crash-test", type="note", data={"number": number}))
        case 2:
            await actor.control("pause")
            await actor.control("resume")
        case 3:
            await actor.kill_switch(on=True)
            await actor.kill_switch(on=False)
        case _:
            await actor.schedule()
