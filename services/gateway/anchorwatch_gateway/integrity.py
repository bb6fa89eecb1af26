"""Repairs of sessions, as people order them."""

from __future__ import annotations

from typing import Any

from anchorwatch.core.errors import Damaged, NotFound
from anchorwatch.core.names import SessionRef
from anchorwatch.journal.blocks import BlockJournal
from anchorwatch.journal.integrity.repair import Order, Repairer

from anchorwatch_gateway.bodies import Repair
from anchorwatch_gateway.caller import by
from anchorwatch_gateway.parts import Parts


def repairer(parts: Parts) -> Repairer:
    """What plans repairs and carries them out."""

    async def pack_of(workspace: str, agent: str) -> str:
        try:
            return (await parts.agents.get(workspace, agent)).pack
        except (NotFound, Damaged):
            return ""

    blocks = BlockJournal(parts.bus, parts.committer, parts.writer)
    return Repairer(parts.bus, parts.committer, parts.journal, blocks, parts.writer, pack_of)


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
