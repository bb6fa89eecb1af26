"""Orders of people about a session: pause, resume, cancel, steer, objectives, constraints, wakes, reset, delete.

Each is carried out once for its idempotency key, and answered with the result.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from anchorwatch import cel
from anchorwatch.codec import canonical_json, sha256_hex
from anchorwatch.core.agents import RULES
from anchorwatch.core.anchor import Status
from anchorwatch.core.errors import BadInput, NotFound
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import (
    CHECK_IN_MS,
    ClearWakes,
    Direct,
    EndEmergency,
    Order,
    Relabel,
    Reset,
    Steer,
    UndoReset,
)
from anchorwatch.core.session.commands import Control as ControlOrder
from anchorwatch.core.session.controls import DIRECTIVES_MAX
from anchorwatch.core.session.critical import LABELLED_BYTES_MAX, all_lines, critical_lines
from anchorwatch.core.session.events import AnchorChanged
from anchorwatch.core.session.goals import goal_of
from anchorwatch.core.session.preview import confirmed, preview
from anchorwatch.core.session.state import InputKind, PastTurn
from anchorwatch.core.session.transitions import ENDS_TURN
from anchorwatch.core.times import iso
from anchorwatch.edges import Edge, reached
from anchorwatch.journal.inputs import input_id
from anchorwatch.journal.orders import Asked, Done, canary, canary_id
from anchorwatch.journal.reading import newest
from anchorwatch.models import catalog
from anchorwatch.topology.subjects import SessionSubjects
from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, Field, StringConstraints

from anchorwatch_gateway import kill_switches
from anchorwatch_gateway.errors import CONFLICT
from anchorwatch_gateway.guard import by
from anchorwatch_gateway.inputs import HOLDING
from anchorwatch_gateway.kill_switches import KillSwitch
from anchorwatch_gateway.labelled import check_message
from anchorwatch_gateway.parts import Parts
from anchorwatch_gateway.requests import (
    KEY_HEADER,
    NOT_BLANK,
    SEQUENCE_MAX,
    Body,
    Key,
    PartsDep,
    Reason,
    RefDep,
    TurnName,
    sent_json,
)
from anchorwatch_gateway.sessions import Directive, find, find_living

router = APIRouter(prefix="/api/sessions", tags=["controls"], responses=CONFLICT)

TOO_LATE = "it may have run, or may still run until its outcome is recorded"
RULE_CHARS_MAX = 1_000
RULE_HINT = "a rule is CEL over `command` (`tool`, `args`, `resource`), `facts` and `observation`"
NOT_ENFORCED = "told to the model, not enforced; `constraint add --rule` enforces one"
NOT_READ = "not read by rules: the agent runs on rules, which read no texts"
PREVIEWED_INPUTS_MAX = 100
PREVIEWED_CHARS_MAX = 200


class Cancel(Reason):
    """The turn to end."""

    turn: TurnName


class SteerTurn(Reason):
    """What to tell the running turn."""

    turn: TurnName
    text: Annotated[str, StringConstraints(min_length=1, max_length=16_000, pattern=NOT_BLANK)]


class Directives(Reason):
    """A change of the objectives or constraints. Those to remove are named word for word."""

    change: Literal["set", "add", "remove"]
    items: list[Directive] = Field(max_length=DIRECTIVES_MAX)
    rule: str = Field(
        "",
        max_length=RULE_CHARS_MAX,
        description="of the one constraint that is added: CEL over `command`, `facts` and `observation`; executors refuse a"
        " command for which it is not true",
    )


class ChangeLine(Reason):
    """The labelled line to change, word for word; with ``text``, this line takes its place."""

    line: Annotated[str, StringConstraints(min_length=1, max_length=LABELLED_BYTES_MAX)]
    text: Annotated[str, StringConstraints(max_length=16_000)] = ""


class CriticalLine(BaseModel):
    """A line of a person that every prompt holds."""

    text: str
    by: str
    at: str
    sequence: int = Field(description="journal sequence of the message, or of the order that corrected it")
    in_prompt: bool = Field(description="false: no turn has taken its message yet")


class CriticalLines(BaseModel):
    """The labelled lines of a session, in their order."""

    session: str
    lines: list[CriticalLine]


class ClearInputs(Reason):
    """The pending inputs to remove: those up to sequence ``through``; null: all that are pending now."""

    through: int | None = Field(None, ge=0, le=SEQUENCE_MAX)


class EndOpenEmergency(Body):
    """Why the emergency is over; it is recorded in the journal."""

    reason: Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=NOT_BLANK)]


class ConfirmReset(Reason):
    """``confirmation``: of the preview; null: reset the session whatever it holds now."""

    confirmation: str | None = Field(max_length=80)


class LateCall(BaseModel):
    """A command of an ended turn that may have run."""

    call: str = Field(description="SESSION/RUN.STEP.N")
    tool: str
    note: str


class Control(BaseModel):
    """Proof that an order was carried out, sent after the journal acknowledged it."""

    control_id: str
    session: str
    kind: str = Field(description="of the anchor's record: paused, cancelled, reset, …")
    sequence: int = Field(description="journal sequence of that record")
    at: str
    by: str
    replayed: bool = Field(description="true: an earlier request under this key was carried out")
    session_status: Status
    kill_switches: list[KillSwitch] | None = Field(description=HOLDING)
    idempotency_key: str
    notes: list[str] = Field(description="of a change of objectives or constraints: what does not bind")
    run_id: int = Field(description="the session's current or last turn")
    more: dict[str, Any] = Field(description="further fields of the record, by name")
    canary: str | None = Field(description="of a reset: the input that starts a turn after it")
    never_start: list[str] = Field(description="commands that cannot run any more")
    too_late: list[LateCall] = Field(
        description="commands that may have run, or may still run; also reads, which need no claim"
    )


class ArchivedTurns(BaseModel):
    """The turns that a reset archives. ``runs``: the first and the last."""

    turns: int
    runs: list[int]


class KeptState(BaseModel):
    """What a reset keeps."""

    objectives: list[str]
    constraints: list[str]
    critical: list[str]
    facts: dict[str, Any]
    run_count: int
    run_id: int


class RemovedInput(BaseModel):
    """A pending input that a reset removes."""

    input_id: str
    kind: InputKind
    text: str


class RemovedInputs(BaseModel):
    """The pending inputs that a reset removes; ``inputs``: the first of them."""

    count: int
    through: int
    inputs: list[RemovedInput]


class ResetPreview(BaseModel):
    """What a reset would do."""

    session: str
    status: Status
    archived: ArchivedTurns
    kept: KeptState
    disposed: RemovedInputs
    cancelled_turn: str | None
    confirmation: str = Field(description="for the reset; it is not valid after the session has changed")


# ---------------------------------------------------------------- routes


@dataclass(frozen=True, slots=True)
class Given:
    """What an order holds besides its own fields."""

    by: str
    at_ms: int
    control_id: str
    check_in_ms: int


Make = Callable[[SessionState, Given], Order]


class ControlRequest:
    """One request for an order. The receipt is bound to the verb and to the JSON as the client sent it."""

    def __init__(
        self, parts: Parts, ref: SessionRef, request: Request, response: Response, key: str | None
    ) -> None:
        self._parts = parts
        self._ref = ref
        self._body = sent_json(request)
        self._response = response
        self._key = key

    async def carry_out(self, verb: str, make: Make) -> Control:
        """Carry the order out, or find that it was.

        Raises:
            NotFound, SessionDeleted, Refused and its kinds, IdempotencyConflict, Fenced, Unavailable, Damaged.
        """
        parts, ref = self._parts, self._ref
        key = self._key or secrets.token_urlsafe(18)
        control_id = input_id("c", ref.workspace, ref.session, key)
        digest = sha256_hex(canonical_json({"verb": verb, "body": self._body}))
        asked = Asked(control_id, by(), digest)

        async def do() -> Control:
            return await _reply(parts, ref, await _carry_out(parts, ref, asked, make), key)

        control, joined = await parts.in_flight.run((ref, control_id, digest), do)
        self._response.headers[KEY_HEADER] = key
        return control.model_copy(update={"replayed": True}) if joined else control

    async def check_message(self, text: str) -> None:
        """Check the labelled lines in a text that the order adds. A repeated order is not checked again.

        Raises:
            TooLarge, NotFound, Unavailable.
        """
        parts, ref = self._parts, self._ref
        key = self._key or ""
        id_ = input_id("c", ref.workspace, ref.session, key)
        done = key and await newest(parts.bus, parts.committer.stream, [SessionSubjects(ref).control(id_)])
        if not done:
            anchor, _ = await find(parts, ref)
            await check_message(parts, ref, anchor.agent, text)

    async def control(self, verb: str, kind: Kind, reason: str, turn: str | None = None) -> Control:
        """Carry out a control that has no fields of its own. Raises as `carry_out`."""

        def make(state: SessionState, given: Given) -> Order:
            return ControlOrder(
                kind,
                given.by,
                given.at_ms,
                reason,
                _turn_id(state, turn),
                given.control_id,
                given.check_in_ms,
            )

        return await self.carry_out(verb, make)


async def get_control_request(
    parts: PartsDep, ref: RefDep, request: Request, response: Response, key: Key = None
) -> ControlRequest:
    return ControlRequest(parts, ref, request, response, key)


ControlDep = Annotated[ControlRequest, Depends(get_control_request)]


@router.post("/{session}/pause")
async def pause_session(order: ControlDep, body: Reason | None = None) -> Control:
    """Pause the session: no new turns or commands. Inputs are queued."""
    return await order.control("pause", Kind.PAUSED, body.reason if body else "")


@router.post("/{session}/resume")
async def resume_session(order: ControlDep, body: Reason | None = None) -> Control:
    """Resume the session."""
    return await order.control("resume", Kind.RESUMED, body.reason if body else "")


@router.post("/{session}/cancel")
async def cancel_turn(order: ControlDep, body: Cancel) -> Control:
    """End the named running turn. ``never_start``: commands that cannot run any more; ``too_late``: those that may."""
    return await order.control("cancel", Kind.CANCELLED, body.reason, body.turn)


@router.post("/{session}/steer")
async def steer_turn(order: ControlDep, body: SteerTurn) -> Control:
    """Tell the named running turn something: its model sees it at the next step."""
    if critical_lines(body.text):
        await order.check_message(body.text)

    def make(state: SessionState, given: Given) -> Order:
        turn = _turn_id(state, body.turn) or ""
        return Steer(given.by, given.at_ms, turn, body.text, given.control_id)

    return await order.carry_out("steer", make)


@router.post("/{session}/objectives")
async def change_objectives(order: ControlDep, body: Directives) -> Control:
    """Set, add or remove objectives."""
    return await _direct(order, "objectives", body)


@router.post("/{session}/constraints")
async def change_constraints(order: ControlDep, body: Directives) -> Control:
    """Set, add or remove constraints."""
    return await _direct(order, "constraints", body)


async def _direct(
    order: ControlRequest, which: Literal["objectives", "constraints"], body: Directives
) -> Control:
    _check_rule(which, body)

    def make(state: SessionState, given: Given) -> Order:
        del state
        items = tuple(body.items)
        return Direct(
            given.by, given.at_ms, which, body.change, items, body.reason, given.control_id, body.rule
        )

    return await order.carry_out(which, make)


def _check_rule(which: str, body: Directives) -> None:
    """Check the rule of a new constraint.

    Raises:
        BadInput: it is not valid CEL, or belongs to something else.
    """
    if not body.rule:
        return
    if which != "constraints" or body.change != "add" or len(body.items) != 1:
        raise BadInput("a rule belongs to one constraint that is added", hint="add one constraint at a time")
    cel.check(body.rule)
    empty = {"tool": "", "args": {}, "resource": ""}
    try:
        value = cel.evaluate(body.rule, {"command": empty, "facts": {}, "observation": {}})
    except RuntimeError as error:
        raise BadInput(f"the rule cannot be evaluated: {error}"[:300], hint=RULE_HINT) from None
    except Exception:  # noqa: BLE001 - an unknown fact is what an empty observation must give
        return
    if not isinstance(value, bool):
        raise BadInput("the rule is not a condition: it must be true or false", hint=RULE_HINT)


async def _notes(parts: Parts, ref: SessionRef, change: AnchorChanged) -> list[str]:
    """What does not bind in the objectives or constraints that an order gave."""
    if change.kind != Kind.DIRECTIVES or change.more.get("change") not in ("add", "set"):
        return []
    anchor, which = change.anchor, change.more["which"]
    texts = anchor.constraints if which == "constraints" else anchor.objectives
    if not texts or change.more.get("rule"):
        return []
    agent = await parts.agents.get(ref.workspace, anchor.agent.partition("@")[0])
    by_rules = catalog.in_turn(parts.settings, agent)[0] == RULES
    if which == "objectives":
        return [NOT_READ] if by_rules and not all(map(goal_of, texts)) else []
    if all(text in anchor.constraint_rules for text in texts):
        return []
    return [NOT_READ if by_rules else NOT_ENFORCED]


@router.get("/{session}/critical")
async def list_critical(parts: PartsDep, ref: RefDep) -> CriticalLines:
    """List the lines that people labelled `CRITICAL:`: who wrote each, and when."""
    _, sequence = await find(parts, ref)
    state = await parts.journal.load(ref, max(sequence, parts.seen.sequence))
    lines = [
        CriticalLine(
            text=each.text,
            by=each.by,
            at=iso(each.at_ms),
            sequence=each.sequence,
            in_prompt=each in state.critical,
        )
        for each in all_lines(state)
    ]
    return CriticalLines(session=ref.session, lines=lines)


@router.post("/{session}/critical")
async def change_critical(order: ControlDep, body: ChangeLine) -> Control:
    """Withdraw a labelled line from later prompts, or put a corrected one in its place."""
    if body.text:
        await order.check_message(body.text)

    def make(state: SessionState, given: Given) -> Order:
        del state
        return Relabel(given.by, given.at_ms, body.line, body.text, body.reason, given.control_id)

    return await order.carry_out("critical", make)


@router.post("/{session}/wakes/clear")
async def clear_wakes(order: ControlDep, body: ClearInputs | None = None) -> Control:
    """Remove pending inputs without a reset. A running turn keeps those that it took."""
    through, reason = (body.through, body.reason) if body else (None, "")

    def make(state: SessionState, given: Given) -> Order:
        upto = state.read_through if through is None else through
        return ClearWakes(given.by, given.at_ms, upto, reason, given.control_id)

    return await order.carry_out("wakes clear", make)


@router.get("/{session}/reset")
async def preview_reset(parts: PartsDep, ref: RefDep) -> ResetPreview:
    """Show what a reset would archive, keep and remove now, and the confirmation that it needs."""
    await find_living(parts, ref)
    state = await parts.journal.load(ref, await parts.journal.newest(ref))
    shown, anchor = preview(state), state.anchor
    assert anchor is not None  # noqa: S101 - it was found
    return ResetPreview(
        session=ref.session,
        status=anchor.status,
        archived=ArchivedTurns(turns=len(shown.runs), runs=[*shown.runs[:1], *shown.runs[1:][-1:]]),
        kept=KeptState(
            objectives=list(anchor.objectives),
            constraints=list(anchor.constraints),
            critical=[each.text for each in state.critical],
            facts=anchor.facts,
            run_count=anchor.run_count,
            run_id=anchor.run_id,
        ),
        disposed=RemovedInputs(
            count=len(shown.disposed),
            through=shown.through,
            inputs=[
                RemovedInput(input_id=each.input_id, kind=each.kind, text=each.text[:PREVIEWED_CHARS_MAX])
                for each in shown.disposed[:PREVIEWED_INPUTS_MAX]
            ],
        ),
        cancelled_turn=shown.cancelled,
        confirmation=shown.confirmation,
    )


@router.post("/{session}/reset")
async def reset_session(order: ControlDep, body: ConfirmReset) -> Control:
    """Archive the conversation and remove pending inputs, as previewed. A canary turn runs after it."""

    def make(state: SessionState, given: Given) -> Order:
        if body.confirmation is None:
            head, through = 0, state.read_through
        else:
            head, through = confirmed(state, body.confirmation)
        return Reset(given.by, given.at_ms, through, head, body.reason, given.control_id, given.check_in_ms)

    return await order.carry_out("reset", make)


@router.post("/{session}/undo-reset")
async def undo_reset(order: ControlDep, body: Reason | None = None) -> Control:
    """Restore the conversation that the last reset archived."""
    reason = body.reason if body else ""

    def make(state: SessionState, given: Given) -> Order:
        del state
        return UndoReset(given.by, given.at_ms, reason, given.control_id)

    return await order.carry_out("undo-reset", make)


@router.post("/{session}/end-emergency")
async def end_emergency(order: ControlDep, body: EndOpenEmergency) -> Control:
    """End the open emergency. An observation that shows it raises it again."""

    def make(state: SessionState, given: Given) -> Order:
        del state
        return EndEmergency(given.by, given.at_ms, body.reason, given.control_id)

    return await order.carry_out("end-emergency", make)


@router.post("/{session}/delete")
async def delete_session(order: ControlDep, body: Reason | None = None) -> Control:
    """Delete the session: its turn is cancelled, pending inputs never run, and its name is not used again."""
    return await order.control("delete", Kind.DELETED, body.reason if body else "")


# ---------------------------------------------------------------- carrying out


def _turn_id(state: SessionState, turn: str | None) -> str | None:
    """The id of a turn that is named by its id or run number."""
    if turn is None or not turn.isdecimal() or state.turn is None:
        return turn
    return state.turn.turn_id if int(turn[:18]) == state.turn.run_id else turn


async def _carry_out(parts: Parts, ref: SessionRef, asked: Asked, make: Make) -> Done:
    given = Given(asked.by, parts.clock.now_ms(), asked.control_id, await _check_in_ms(parts, ref))
    reached(Edge.GATEWAY_CONTROL_BEFORE)
    done = await parts.orders.carry_out(
        ref,
        asked,
        lambda state: make(state, given),
        also=lambda change: canary(ref, change, parts.writer),
        deadline_s=parts.commit_deadline_s,
    )
    reached(Edge.GATEWAY_CONTROL_AFTER)
    parts.seen.note(done.sequence + 1)
    return done


async def _check_in_ms(parts: Parts, ref: SessionRef) -> int:
    """How long after a turn that an order ends the session checks again: its agent's heartbeat.

    A deleted session is allowed here: a repeated order gets its answer, and `decide` refuses any other.
    """
    anchor, _ = await find(parts, ref)
    try:
        agent = await parts.agents.get(ref.workspace, anchor.agent.partition("@")[0])
    except NotFound:
        return CHECK_IN_MS
    return round((agent.heartbeat_s or parts.settings.heartbeat_s) * 1000)


async def _reply(parts: Parts, ref: SessionRef, done: Done, key: str) -> Control:
    change = done.change
    ended: Sequence[Fate] = ()
    if change.kind in ENDS_TURN:
        ended = await fates(parts, ref, done)
    # Nothing holds a deleted session.
    switches = (
        [] if change.anchor.status == "deleted" else await kill_switches.over(parts, ref, change.anchor.agent)
    )
    return Control(
        control_id=change.control_id,
        session=ref.session,
        kind=change.kind,
        sequence=done.sequence,
        at=iso(change.at_ms),
        by=change.by,
        replayed=done.replayed,
        session_status=change.anchor.status,
        kill_switches=switches,
        idempotency_key=key,
        notes=await _notes(parts, ref, change),
        run_id=change.anchor.run_id,
        more={name: value for name, value in change.more.items() if name != "text"},
        canary=canary_id(change) if change.kind == Kind.RESET else None,
        never_start=[fate.call for fate in ended if fate.state == "never_starts"],
        too_late=[
            LateCall(call=fate.call, tool=fate.tool, note=TOO_LATE)
            for fate in ended
            if fate.state == "may_have_run"
        ],
    )


# ---------------------------------------------------------------- commands of an ended turn


@dataclass(frozen=True, slots=True)
class Fate:
    """The fate of a command of an ended turn. ``call``: SESSION/RUN.STEP.N."""

    call: str
    tool: str
    state: Literal["ended", "never_starts", "may_have_run"]


async def fates(parts: Parts, ref: SessionRef, done: Done) -> list[Fate]:
    """The fate of each command of the turn that the order at ``done.sequence`` ended.

    The order raised the fence before the claims are read here. So a command without an outcome before the fence
    - never starts if it needs a claim and had none: an executor that claims it later reads the fence after its claim;
    - may have run if it was claimed, if the journal may have lost its claim, or if it is a read, which needs no claim.

    Raises:
        Unavailable, Damaged.
    """
    state = done.state or await parts.journal.load(ref, done.sequence)
    turn = _past_turn(state, done.change.anchor.last_run_id)
    if turn is None or turn.outcome != "cancelled":
        return []
    calls = [
        (CallId(turn.run_id, step.number, call.n), call)
        for step in turn.steps
        for call in step.calls
        if call.state != "rejected"
    ]
    found = []
    for ident, call in calls:
        # As it was when the fence was raised, so that a repeated request gets the same answer.
        effect = await parts.effects.before(ref, call.pool, ident, call.sequence, done.sequence)
        fate: Literal["ended", "never_starts", "may_have_run"]
        if effect.outcome is not None:
            fate = "ended"
        elif effect.first_claim or not call.mutating:
            fate = "may_have_run"
        else:
            fate = "never_starts"
        found.append(Fate(f"{ref.session}/{ident}", call.tool, fate))
    return found


def _past_turn(state: SessionState, run_id: int) -> PastTurn | None:
    turns = (*state.history, *(turn for archive in state.archives for turn in archive.turns))
    return next((turn for turn in turns if turn.run_id == run_id), None)
