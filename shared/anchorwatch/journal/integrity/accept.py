"""Acceptance of a lost end of the journal: what a person confirms, the repair of each session, and the end of the hold.

Lost records are not guessed, and no lost work runs again (INV-917). A turn that may have run counts as failed, with the inputs
that it may have taken; a command that may have started is `unknown`. Each session is repaired once, under the digest of the
confirmed gaps; then the hold ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anchorwatch.bus.port import Bus, Stored
from anchorwatch.codec import decode, decode_anchor
from anchorwatch.core.errors import ChangedSince, Damaged, NotFound, Refused, SessionDeleted
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Record
from anchorwatch.core.times import iso
from anchorwatch.journal.commit import Committer
from anchorwatch.journal.heads import last_anchor
from anchorwatch.journal.integrity.losses import may_have_lost
from anchorwatch.journal.integrity.repair import Order, Repairer
from anchorwatch.journal.ordered import OrderedRegisters
from anchorwatch.journal.orders import Asked
from anchorwatch.journal.truncation import Gap, Hold, hold_record, read_hold, remove_filling, standing_hold
from anchorwatch.topology.subjects import (
    ANCHOR_CHANGE,
    MESH,
    MESH_HOLD,
    SWITCHED,
    SessionSubjects,
    parse_register,
)

ACCEPTED = "accept-"
"""The prefix of an acceptance's receipt."""
_ID_CHARS = 24


@dataclass(frozen=True, slots=True)
class Accepted:
    """The progress of an acceptance. ``sequence``: the end of the hold; 0 while sessions are ``left``, so order it again."""

    left: int
    sequence: int = 0
    by: str = ""
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """The current hold, and the sessions that its acceptance concerns. ``gone``: sessions without any record left."""

    hold: Hold
    concerned: Sequence[SessionRef]
    gone: Sequence[SessionRef]

    def to_json(self) -> dict[str, Any]:
        """For people and programs."""
        hold = self.hold
        return {
            "held": hold.on,
            "plan": hold.digest if hold.gaps else None,
            "since": iso(min(each.at_ms for each in hold.gaps)) if hold.on else None,
            "accepted": None if hold.on or not hold.gaps else _accepted(hold),
            "gaps": [_gap(each) for each in hold.gaps],
            "sessions": [_name(each) for each in self.concerned],
            "sessions_gone": [_name(each) for each in self.gone],
        }


class Acceptance:
    """Shows the loss, and accepts it. ``writer`` names the process in the records."""

    def __init__(
        self,
        bus: Bus,
        committer: Committer,
        repairer: Repairer,
        writer: str,
        elapsed_s: Callable[[], float] | None = None,
    ) -> None:
        self._bus = bus
        self._stream = committer.stream
        self._registers = OrderedRegisters(bus, committer)
        self._repairer = repairer
        self._writer = writer
        self._elapsed_s = elapsed_s or (lambda: asyncio.get_running_loop().time())

    async def show(self) -> Shown:
        """The hold and the sessions that it concerns.

        Raises:
            Unavailable, Damaged.
        """
        hold = await standing_hold(self._bus, self._stream)
        there = await self._sessions() if hold.on else {}
        concerned = [ref for ref, first in there.items() if _own(hold.gaps, ref, first)]
        lost = {each.register.ref for gap in hold.gaps for each in gap.records}
        # A register whose name begins with `_` does not belong to a session.
        gone = [each for each in lost - there.keys() if not each.session.startswith("_")] if hold.on else []
        return Shown(hold, sorted(concerned, key=str), sorted(gone, key=str))

    async def accept(self, order: Order, within_s: float) -> Accepted:
        """Repair sessions for at most ``within_s``, and end the hold after the last one. A repeated order continues.

        Raises:
            ChangedSince: the hold lists other gaps. Refused: there is no hold. Fenced, Unavailable, Damaged.
        """
        asked = Asked(f"{ACCEPTED}{order.plan[:_ID_CHARS]}", order.by, order.plan)
        receipt = SWITCHED.at(workspace=MESH, control_id=asked.control_id)
        hold = await standing_hold(self._bus, self._stream)
        if hold.on:
            _check(hold, order)
            # A witness that died may have left its filling in place of a gap.
            await remove_filling(self._bus, self._stream)
            if left := await self._repair(hold, order, self._elapsed_s() + within_s):
                return Accepted(left)

        def release(found: Stored | None) -> Record:
            standing = read_hold(found) if found else Hold()
            if not standing.on:
                raise Refused("there is no hold: the journal has no loss to accept")
            _check(standing, order)
            over = replace(standing, on=False, by=order.by, note=order.note, at_ms=order.at_ms)
            return decode(hold_record(over, self._writer, asked.control_id))

        stored, replayed = await self._registers.order(MESH_HOLD, receipt, asked, release)
        return Accepted(0, stored.sequence, read_hold(stored).by, replayed)

    async def _repair(self, hold: Hold, order: Order, until_s: float) -> int:
        """Repair sessions in order; returns the number that is left."""
        there = await self._sessions()
        todo = sorted((ref for ref, first in there.items() if _own(hold.gaps, ref, first)), key=str)
        for done, ref in enumerate(todo):
            if done and self._elapsed_s() > until_s:
                return len(todo) - done
            try:
                await self._repairer.accept(ref, hold.gaps, order)
            except (SessionDeleted, NotFound):
                continue
        return 0

    async def _sessions(self) -> dict[SessionRef, int]:
        """The first sequence of each session that is in the journal and not deleted."""
        found = {}
        for subject in await self._bus.counts(self._stream, ANCHOR_CHANGE.filter()):
            ref = parse_register(subject).ref
            page = await self._bus.range(
                self._stream, SessionSubjects(ref).anchor_change, 1, limit=1, reach=0
            )
            if page.messages and not await self._is_deleted(ref):
                found[ref] = page.messages[0].sequence
        return found

    async def _is_deleted(self, ref: SessionRef) -> bool:
        try:
            last = await last_anchor(self._bus, self._stream, ref)
            return last is not None and decode_anchor(last.payload)[0].status == "deleted"
        except Damaged:
            return False


def _own(gaps: Sequence[Gap], ref: SessionRef, begins_at: int) -> list[Gap]:
    return [each for each in gaps if begins_at < each.first and may_have_lost(each, ref)]


def _check(hold: Hold, order: Order) -> None:
    if hold.digest != order.plan:
        raise ChangedSince(
            "the journal has lost more records than the plan shows",
            hint="read the new plan: `anchorwatch journal accept --dry-run`",
        )


def _gap(gap: Gap) -> dict[str, Any]:
    rows = [
        {
            "sequence": each.sequence,
            "workspace": each.register.ref.workspace,
            "session": each.register.ref.session,
            "register": ".".join(each.register.path),
            **({"command": dict(each.command)} if each.command else {}),
        }
        for each in gap.records
    ]
    return {
        "first": gap.first,
        "through": gap.through,
        "end_known": not gap.open_end,
        "found_by": gap.found_by,
        "at": iso(gap.at_ms),
        "unlisted": gap.unlisted,
        "records": rows,
    }


def _accepted(hold: Hold) -> dict[str, Any]:
    return {"by": hold.by, "note": hold.note, "at": iso(hold.at_ms), "sequence": hold.sequence}


def _name(ref: SessionRef) -> dict[str, str]:
    return {"workspace": ref.workspace, "session": ref.session}
