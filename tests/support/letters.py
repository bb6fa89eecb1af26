"""Dead letters as a test sees them."""

from __future__ import annotations

from anchorwatch.bus.port import Bus
from anchorwatch.core.letters import Action, DeadLetter, Verb, ordered
from anchorwatch.journal.letters import LetterJournal, read_letter
from anchorwatch.topology.streams import DEAD


async def letters(bus: Bus) -> list[DeadLetter]:
    """Every letter, in the order of its last change."""
    page = await bus.range(DEAD, "aw.dead.>", 1, limit=1_000)
    return [letter for stored in page.messages if (letter := read_letter(stored).letter) is not None]


async def only_letter(bus: Bus) -> DeadLetter | None:
    """The letter, where there is exactly one."""
    found = await letters(bus)
    assert len(found) <= 1, found
    return found[0] if found else None


async def order(bus: Bus, letter: DeadLetter, verb: Verb, at_ms: int, key: str = "k") -> None:
    """What the gateway writes when a person orders it."""
    action = Action(verb, "a person", at_ms, key)
    await LetterJournal(bus, "outside").change(
        letter.address, lambda now: ordered(now, action) if now else None, at_ms
    )
