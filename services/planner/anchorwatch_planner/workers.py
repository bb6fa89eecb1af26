"""The planner's workers: messages that wake sessions go to their mailboxes, messages about schedules to the runner."""

from __future__ import annotations

from dataclasses import dataclass, replace

from anchorwatch.bus.port import ConsumerSpec, Stored
from anchorwatch.codec import decode
from anchorwatch.core.errors import Damaged, NewerSchema
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.edges import Edge
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.keepalive import ACK_WAIT_S
from anchorwatch.service.worker import Done, NoAnswer, Result, Skip, Worker
from anchorwatch.topology.streams import TICKS, journal_stream
from anchorwatch.topology.subjects import (
    CONTROL,
    EFFECT,
    GATE,
    INPUT,
    OUTCOMES,
    SCHEDULE,
    SLOT_FIRED,
    TICK_FIRED,
    parse_register,
)

from anchorwatch_planner.mailbox import Mailboxes
from anchorwatch_planner.schedules import ScheduleRunner
from anchorwatch_planner.takeover import Cause, CauseKind

WAKES_IN_HAND_MAX = 1_000
SCHEDULES_AT_ONCE = 16
_ANSWERS = (
    INPUT.filter(),
    *(EFFECT.filter(register=outcome) for outcome in OUTCOMES),
    EFFECT.filter(register=GATE),
)
WAKES = ConsumerSpec(
    journal_stream(),
    # The anchors themselves are mostly written by planners.
    (*_ANSWERS, CONTROL.filter()),
    "planner",
    ack_wait_s=ACK_WAIT_S,
    ack_pending_max=WAKES_IN_HAND_MAX,
)
TICKS_FIRED = ConsumerSpec(TICKS, (TICK_FIRED.filter(),), "planner-ticks", ack_wait_s=ACK_WAIT_S)
SCHEDULES = ConsumerSpec(journal_stream(), (SCHEDULE.filter(),), "planner-schedules", ack_wait_s=ACK_WAIT_S)
SLOTS = ConsumerSpec(TICKS, (SLOT_FIRED.filter(),), "planner-slots", ack_wait_s=ACK_WAIT_S)
_KINDS: dict[str, CauseKind] = {"in": "in", "fx.done": "done", "fx.gate": "gate", "ctl": "control"}


@dataclass(frozen=True, slots=True)
class Wake:
    """A message that causes a pass over a session."""

    ref: SessionRef
    cause: Cause
    sequence: int


class WakeWorker(Worker[Wake]):
    """Brings the messages of one consumer to their sessions' mailboxes, where they are ordered and merged.

    It resumes nothing: a planner that starts makes a pass over every session.
    """

    ack_edge = Edge.PLANNER_ACK_BEFORE
    resumes = False
    pull_max = 32
    finish_s = 0.0

    def __init__(self, context: ServiceContext, spec: ConsumerSpec, mailboxes: Mailboxes) -> None:
        super().__init__(context, spec, concurrency=WAKES_IN_HAND_MAX)
        self._mailboxes = mailboxes

    def parse(self, stored: Stored) -> Wake:
        if (tick := TICK_FIRED.parse(stored.subject)) is not None:
            ref = SessionRef(tick["workspace"], tick["session"])
            return Wake(ref, Cause("tick", fired_ms=stored.time_ms), stored.sequence)
        register = parse_register(stored.subject)
        # The filters of an earlier release may have left a message of another register: a pass does no harm.
        kind = _KINDS.get(register.kind, "control")
        if kind == "control" and _resumes(stored):
            kind = "resumed"
        return Wake(register.ref, Cause(kind, stored.sequence, stored=stored), stored.sequence)

    def key(self, item: Wake) -> int:
        return item.sequence

    async def handle(self, item: Wake, attempt: int) -> Result | NoAnswer:
        return await self._mailboxes.handle(item.ref, replace(item.cause, attempt=attempt))


def _resumes(stored: Stored) -> bool:
    try:
        return Kind.RESUMED in decode(stored.payload).body.get("kinds", ())
    except Damaged:
        # The pass reports what is wrong with the session.
        return False


@dataclass(frozen=True, slots=True)
class ScheduleWake:
    """A schedule was changed; or, with ``fired_ms``, its timer fired, at that instant by the server's clock."""

    workspace: str
    name: str
    fired_ms: int | None = None


class ScheduleConsumer(Worker[ScheduleWake]):
    """Checks the schedules that the messages of one consumer are about."""

    ack_edge = Edge.PLANNER_ACK_BEFORE
    resumes = False
    retry_s = 1.0
    retry_s_max = 8.0

    def __init__(self, context: ServiceContext, spec: ConsumerSpec, schedules: ScheduleRunner) -> None:
        super().__init__(context, spec, concurrency=SCHEDULES_AT_ONCE)
        self._schedules = schedules

    def parse(self, stored: Stored) -> ScheduleWake | Skip:
        if (tick := SLOT_FIRED.parse(stored.subject)) is not None:
            return ScheduleWake(tick["workspace"], tick["name"], stored.time_ms)
        if (changed := SCHEDULE.parse(stored.subject)) is not None:
            return ScheduleWake(changed["workspace"], changed["name"])
        return Skip()

    def key(self, item: ScheduleWake) -> tuple[str, str]:
        return item.workspace, item.name

    async def handle(self, item: ScheduleWake, attempt: int) -> Result:  # noqa: ARG002
        try:
            if item.fired_ms is not None:
                await self._schedules.on_fired(item.workspace, item.name, item.fired_ms)
            else:
                await self._schedules.check(item.workspace, item.name)
        except NewerSchema:
            raise
        except Damaged as error:
            # A retry would fail in the same way; each sweep logs it.
            log = self.log.bind(workspace=item.workspace, schedule=item.name)
            log.error("schedule.damaged", reason=str(error))  # noqa: TRY400 - the traceback adds nothing
        return Done()
