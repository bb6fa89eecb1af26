"""Whether a delivery that is counted as a command's first is the first.

A server that was killed may have forgotten that it delivered a command, and a consumer that was made anew has delivered none.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from anchorwatch.bus.port import Bus
from anchorwatch.core.errors import Unavailable
from anchorwatch.service.intake import Intake


@dataclass(slots=True)
class Firsts:
    """What was stored behind the beginning of this connection and of this consumer can have been delivered to nobody before."""

    bus: Bus
    stream: str
    intake: Intake
    _seen: tuple[int, int] = (0, 0)
    _through: int = 0

    async def attempt(self, sequence: int, counted: int) -> int:
        """The number of a delivery that the server counts as ``counted``: at least 2 where it need not be the first.

        Raises:
            Unavailable.
        """
        if counted > 1:
            return counted
        if self._seen != self._now:
            await self._look()
        return 1 if sequence > self._through else 2

    async def look(self) -> None:
        """See how far the stream is, so that what comes from now on is known to be new."""
        with contextlib.suppress(Unavailable):
            await self._look()

    @property
    def _now(self) -> tuple[int, int]:
        return self.bus.connections, self.intake.times

    async def _look(self) -> None:
        now = self._now
        self._through = (await self.bus.stream_state(self.stream)).last_sequence
        self._seen = now
