"""The limit of the lines that people labelled `CRITICAL:`, checked before a message or a correction is accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from anchorwatch.context.floor import check_labelled
from anchorwatch.core.errors import Damaged
from anchorwatch.core.names import SessionRef
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.critical import all_lines, critical_lines
from anchorwatch.models import catalog
from anchorwatch.models import registry as models
from anchorwatch.packs import registry as packs

from anchorwatch_gateway.parts import Parts


async def check_message(parts: Parts, ref: SessionRef, agent: str, text: str) -> None:
    """Check the labelled lines that the session would have with a new message.

    Raises:
        TooLarge: they exceed their share of a request. NotFound: there is no such agent. Unavailable.
    """
    new = critical_lines(text)
    try:
        state = await parts.journal.load(ref, parts.seen.sequence)
    except Damaged:
        # A quarantined session accepts inputs; its other lines are known again after the repair.
        state = SessionState()
    known = (each.text for each in all_lines(state))
    await check_lines(parts, ref, agent, tuple(dict.fromkeys((*known, *new))))


async def check_lines(parts: Parts, ref: SessionRef, agent: str, lines: Sequence[str]) -> None:
    """Check all labelled lines of a session against the limits of each of its agent's models. Raises as `check_message`."""
    settings = parts.settings
    spec = await parts.agents.get(ref.workspace, agent.partition("@")[0])
    pack = packs.load(spec.pack)
    for name in catalog.in_turn(settings, spec):
        wanted = spec.limits.context_tokens_max or settings.context_tokens_max
        budget = min(wanted, catalog.bound(settings, name) or wanted)
        model = models.build(settings, spec.model_copy(update={"model": name}), pack)
        try:
            # The first count loads a vocabulary, which must not block other requests.
            await asyncio.to_thread(check_labelled, lines, spec, pack, model, budget)
        finally:
            await model.close()
