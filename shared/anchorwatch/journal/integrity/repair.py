"""Carries out repairs that a person has confirmed (INV-903).

It first records the outcome of each unclear effect, after the effect's own records. Then one atomic write after the last planner
record holds the snapshot from which loading starts, the anchor `repaired` with the accepted findings, and the receipt. After a
crash in between, the same plan is ordered again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from anchorwatch.bus.port import Bus
from anchorwatch.codec import decode, encode
from anchorwatch.core.effect.state import Outcome
from anchorwatch.core.errors import ChangedSince, Fenced
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Record
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import Repair
from anchorwatch.core.session.decide import repair
from anchorwatch.core.session.events import PlannerEvent, SnapshotTaken
from anchorwatch.core.session.quarantine import at_rest
from anchorwatch.journal.blocks import BlockJournal, Entry, Resource
from anchorwatch.journal.commit import Committer, Write
from anchorwatch.journal.effect_mapping import effect_body
from anchorwatch.journal.heads import commit_behind
from anchorwatch.journal.integrity.families import Family
from anchorwatch.journal.integrity.plan import Plan, plan
from anchorwatch.journal.integrity.report import Examination
from anchorwatch.journal.integrity.verify import verify
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.journal.truncation import Gap
from anchorwatch.topology.subjects import SessionSubjects

ERROR = "damaged_record"
REASON = "the journal was damaged"
RECEIPT = "repair-"
"""The prefix of a repair's receipt among the orders of a session."""
_ID_CHARS = 24

PackOf = Callable[[str, str], Awaitable[str]]
"""(workspace, agent) -> the name of its pack; empty if it is unknown."""


@dataclass(frozen=True, slots=True)
class Order:
    """The confirmed plan, the person who confirmed it, their note, and the time (Unix milliseconds)."""

    plan: str
    by: str
    note: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Repaired:
    """A recorded repair, at the sequence of its anchor. ``replayed``: it was recorded before this order."""

    sequence: int
    by: str
    replayed: bool


class Repairer:
    """Plans repairs and carries them out. ``writer`` names the process in the records."""

    def __init__(
        self,
        bus: Bus,
        committer: Committer,
        sessions: SessionJournal,
        blocks: BlockJournal,
        writer: str,
        pack_of: PackOf,
    ) -> None:
        self._bus = bus
        self._committer = committer
        self._sessions = sessions
        self._blocks = blocks
        self._writer = writer
        self._pack_of = pack_of

    async def plan(self, ref: SessionRef) -> Plan:
        """The plan of a repair now.

        Raises:
            NotFound, Unavailable, and those of `plan`.
        """
        return plan(await self._examine(ref))

    async def carry_out(self, ref: SessionRef, order: Order) -> Repaired:
        """Carry out the confirmed plan; a repeated plan has no further effect.

        Raises:
            ChangedSince: the session has changed since the plan; only effects that are `unknown` in any case are recorded.
            NotFound, Unavailable, TooLarge, and those of `plan`.
        """
        done = await self._find(ref, order)
        if done is not None:
            return done
        examination = await self._examine(ref)
        agreed = plan(examination)
        if agreed.digest != order.plan:
            raise _changed(ref)
        for family in agreed.unclear:
            await self._settle(agreed, family, order)
        try:
            return await self._append(examination, agreed, order)
        except Fenced:
            done = await self._find(ref, order)
            if done is None:
                raise _changed(ref) from None
            return replace(done, replayed=False)

    async def accept(self, ref: SessionRef, gaps: Sequence[Gap], order: Order) -> Repaired:
        """Repair a session that may have lost records at the journal's end, once for each ``order.plan``.

        Raises:
            as `carry_out`, without `ChangedSince` if the session merely differs from the plan that was shown.
        """
        done = await self._find(ref, order)
        if done is not None:
            return done
        examination = await self._examine(ref)
        agreed = plan(examination, gaps)
        for family in agreed.unclear:
            await self._settle(agreed, family, order)
        return await self._append(examination, agreed, order)

    async def _examine(self, ref: SessionRef) -> Examination:
        return await verify(self._bus, self._committer.stream, self._sessions, ref)

    async def _find(self, ref: SessionRef, order: Order) -> Repaired | None:
        subject = SessionSubjects(ref).control(_control_id(order))
        page = await self._bus.last(self._committer.stream, [subject])
        if not page.messages:
            return None
        receipt = page.messages[0]
        # It is directly after its anchor, in the same atomic write.
        return Repaired(receipt.sequence - 1, str(decode(receipt.payload).body["by"]), replayed=True)

    async def _append(self, examination: Examination, agreed: Plan, order: Order) -> Repaired:
        state = examination.examiner.state
        command = Repair(
            by=order.by,
            at_ms=order.at_ms,
            believed=agreed.believed,
            restarts=agreed.restarts,
            was=agreed.was,
            reason=order.note or REASON,
            note=order.note,
            control_id=_control_id(order),
            more=_said(agreed),
        )
        change = repair(state, command)
        events: list[PlannerEvent] = [change]
        if agreed.reloads:
            events.insert(0, SnapshotTaken(_snapshot(examination, agreed, at_rest(state, change.anchor))))
        behind = SessionState(head=agreed.head, head_digest=agreed.head_digest)
        receipt = {"by": order.by, "body_sha256": order.plan}
        after = await self._sessions.append(
            agreed.ref, behind, events, order.at_ms, receipt=receipt, past_the_lost=True
        )
        return Repaired(after.head, order.by, replayed=False)

    async def _settle(self, agreed: Plan, family: Family, order: Order) -> None:
        """Record the outcome of an unclear effect; an unknown one is entered in the resource register first."""
        ref, command = agreed.ref, family.command
        done = Outcome(
            call=family.call,
            tool=command.tool if command else "",
            state="unknown" if family.may_have_run else "refused",
            text="its records cannot be read",
            data={},
            error=ERROR if family.may_have_run else "",
            rule="" if family.may_have_run else ERROR,
            resource=command.resource if command else "",
            effect_key=command.effect_key if command else "",
            turn_id=command.turn_id if command else "",
        )
        if family.may_have_run and command and command.resource:
            pack = await self._pack_of(ref.workspace, command.agent)
            if pack:
                resource = Resource(ref.workspace, pack, command.resource)
                await self._blocks.enter(resource, Entry(ref.session, family.call, family.pool), order.at_ms)
        register, kind, body = effect_body(done)
        payload, _ = encode(Record(kind, order.at_ms, self._writer, body))
        subjects = SessionSubjects(ref)
        write = Write(subjects.effect(family.pool, family.call, register), payload)
        try:
            await commit_behind(
                self._committer, [write], subjects.effect_family(family.pool, family.call), family.head
            )
        except Fenced:
            # Another process recorded more of the effect: the plan is outdated.
            raise _changed(ref) from None


def _snapshot(examination: Examination, agreed: Plan, state: SessionState) -> SessionState:
    return state._replace(
        anchor=agreed.believed,
        anchor_sequence=agreed.believed_from,
        told=state.told or agreed.believed,
        told_sequence=state.told_sequence or agreed.believed_from,
        head=agreed.head,
        head_digest=agreed.head_digest,
        read_through=examination.through,
        passed_over=tuple(sorted({*state.passed_over, *agreed.passed_over})),
    )


def _said(agreed: Plan) -> dict[str, object]:
    """The fields of the record beside the anchor: the plan, and each accepted finding with its meaning."""
    return {
        "plan": agreed.digest,
        "accepted": [remedy.finding.id for remedy in agreed.remedies],
        "means": [
            [remedy.finding.sequence, remedy.finding.register, remedy.meaning] for remedy in agreed.remedies
        ],
    }


def _control_id(order: Order) -> str:
    return f"{RECEIPT}{order.plan[:_ID_CHARS]}"


def _changed(ref: SessionRef) -> ChangedSince:
    return ChangedSince(
        f"the session {ref.session} has changed since the repair was shown",
        hint=f"read the new plan: `anchorwatch repair {ref.session} --dry-run`",
    )
