"""Reading what is refused on: an answer that lags must not refuse what the journal allows by now.

A write that was decided on an old answer is fenced; a refusal writes nothing, so nothing would ever tell.
"""

from __future__ import annotations

from collections.abc import Sequence

from anchorwatch.bus.port import Bus, Stored
from anchorwatch.core.errors import Unavailable

STALE_ATTEMPTS_MAX = 20


async def newest(bus: Bus, stream: str, subjects: Sequence[str]) -> dict[str, Stored]:
    """The last message of each subject that has one, from an answer that has all that was written before the call.

    Raises:
        Unavailable: no server has answered that far.
    """
    last = (await bus.stream_state(stream)).last_sequence
    for _ in range(STALE_ATTEMPTS_MAX):
        page = await bus.last(stream, subjects)
        if page.up_to >= last:
            return {each.subject: each for each in page.messages}
    raise Unavailable(f"no server has answered up to sequence {last} of {stream}")
