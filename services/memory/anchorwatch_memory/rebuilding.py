"""What a retry is of a record that could not be entered."""

from __future__ import annotations

from anchorwatch.core.letters import DeadLetter
from anchorwatch.service.letters import DeadLetters
from anchorwatch.service.worker import Done, Result, RetryIn

from anchorwatch_memory.faults import Faults
from anchorwatch_memory.follow import Follower
from anchorwatch_memory.port import ProjectionsDamaged

AGAIN_S = 1.0


class Rebuilding:
    """What a retry of such a letter is: everything is entered anew, once for each order."""

    def __init__(self, follower: Follower, faults: Faults, letters: DeadLetters) -> None:
        self._follower = follower
        self._faults = faults
        self._letters = letters
        self._begun: set[tuple[str, int]] = set()

    async def take_up(self, letter: DeadLetter) -> Result:
        """Enter everything anew; open the letter again where its record cannot be entered either."""
        address = letter.address
        order = (address.letter_id, letter.due_at_ms)
        if order not in self._begun:
            self._begun.add(order)
            self._follower.note_damage(ProjectionsDamaged("a person ordered that it is entered anew"))
        if self._follower.rebuilding or self._follower.sequence < address.sequence:
            return RetryIn(AGAIN_S)
        if not await self._faults.stands(address.sequence):
            return Done()
        await self._letters.show(address, letter.fault)
        return RetryIn(AGAIN_S)

    async def settle(self, letter: DeadLetter) -> None:
        """Nothing depends on it: the timeline says that the record is not in."""
