"""Repairs of sessions, and the acceptance of a loss of the journal's end, as people order them."""

from __future__ import annotations

from typing import Any

from anchorwatch.core.errors import Damaged, NotFound
from anchorwatch.core.names import SessionRef
from anchorwatch.journal.blocks import BlockJournal
from anchorwatch.journal.integrity.accept import Acceptance
from anchorwatch.journal.integrity.repair import Order, Repairer

from anchorwatch_gateway.bodies import Accept, Repair
from anchorwatch_gateway.caller import by
from anchorwatch_gateway.parts import Parts

ACCEPT_S_MAX = 5.0
"""So long one request repairs sessions; the client asks again until none is left."""


def repairer(parts: Parts) -> Repairer:
    """What plans repairs and carries them out."""

    async def pack_of(workspace: str, agent: str) -> str:
        try:
            return (await parts.agents.get(workspace, agent)).pack
        except (NotFound, Damaged):
            return ""

    blocks = BlockJournal(parts.bus, parts.committer, parts.writer)
    return Repairer(parts.bus, parts.committer, parts.journal, blocks, parts.writer, pack_of)


def acceptance(parts: Parts) -> Acceptance:
    """What shows and accepts that the journal lost its end."""
    return Acceptance(parts.bus, parts.committer, repairer(parts), parts.writer)


async def accept(parts: Parts, confirmed: Accept) -> dict[str, Any]:
    """Accept what was shown and confirmed; the same again goes on with it, or finds that it was done.

    Raises:
        as `Acceptance.accept`.
    """
    order = Order(confirmed.plan, by(), confirmed.note, parts.clock.now_ms())
    done = await acceptance(parts).accept(order, ACCEPT_S_MAX)
    parts.seen.note(done.sequence)
    return {
        "plan": confirmed.plan,
        "left": done.left,
        "sequence": done.sequence or None,
        "by": done.by or order.by,
        "replayed": done.replayed,
    }


async def carry_out(parts: Parts, ref: SessionRef, confirmed: Repair) -> dict[str, Any]:
    """Do what was shown and confirmed; the same again finds that it was done.

    Raises:
        ChangedSince: it is not what would be done now. And as `Repairer.carry_out`.
    """
    order = Order(confirmed.plan, by(), confirmed.note, parts.clock.now_ms())
    done = await repairer(parts).carry_out(ref, order)
    parts.seen.note(done.sequence)
    return {
        "session": ref.session,
        "plan": confirmed.plan,
        "sequence": done.sequence,
        "by": done.by,
        "replayed": done.replayed,
    }
