"""Waiting for a model only while its turn is held.

A cancel, a reset, a deletion and a takeover raise the session's generation, and whatever a model says then can be committed no
more: the call is dropped, which closes its connection, and nobody pays for the rest of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from anchorwatch.core.errors import AnchorWatchError, Fenced, NotFound
from anchorwatch.core.names import SessionRef
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.service.context import Clock

LOOK_S = 0.5
"""How often the anchor is looked at meanwhile."""
T = TypeVar("T")


async def while_held(
    sessions: SessionJournal, clock: Clock, ref: SessionRef, generation: int, work: Coroutine[Any, Any, T]
) -> T:
    """What comes of ``work``, which is cancelled once the session's generation is another.

    Raises:
        Fenced: it was cancelled so. Whatever ``work`` raises.
    """
    working = asyncio.create_task(work, name=f"model of {ref}")
    watching = asyncio.create_task(_lost(sessions, clock, ref, generation), name=f"hold on {ref}")
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
    finally:
        working.cancel()
        watching.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)
    raise Fenced(f"the turn of {ref} is held no more; its call to the model was dropped")


async def _lost(sessions: SessionJournal, clock: Clock, ref: SessionRef, generation: int) -> None:
    """Return once the turn is no longer held."""
    while True:
        await clock.sleep(LOOK_S)
        try:
            anchor, _ = await sessions.read_anchor(ref)
        except NotFound:
            return
        except AnchorWatchError:
            # Whether it is held cannot be seen now; the next record tells.
            continue
        if anchor.generation != generation:
            return
