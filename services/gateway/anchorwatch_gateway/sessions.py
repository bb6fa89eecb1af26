"""Sessions: create one, list them, show one with what holds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from anchorwatch.codec import decode_anchor
from anchorwatch.core.agents import AgentSpec, Name
from anchorwatch.core.anchor import Anchor, Pace, RunOutcome, Status
from anchorwatch.core.emergency import OpenEmergency
from anchorwatch.core.errors import Conflict, Fenced, NotFound, SessionDeleted, Unavailable
from anchorwatch.core.names import SessionRef
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import Create
from anchorwatch.core.session.controls import DIRECTIVES_MAX
from anchorwatch.core.session.decide import decide
from anchorwatch.core.session.pacing import Hold, Rate
from anchorwatch.core.session.state import Input
from anchorwatch.core.times import from_iso, iso
from anchorwatch.edges import Edge, reached
from anchorwatch.journal.paces import Account
from anchorwatch.journal.switches import Switch
from anchorwatch.service.rates import rate_of, shared_rate_of
from anchorwatch.topology.subjects import SessionSubjects
from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, StringConstraints

from anchorwatch_gateway.errors import CONFLICT
from anchorwatch_gateway.parts import Parts
from anchorwatch_gateway.requests import (
    PRIORITIES,
    AtLeast,
    Body,
    Clipped,
    Filter,
    Page,
    PartsDep,
    RefDep,
    WindowDep,
    WorkspaceDep,
    answers,
    read,
    read_page,
    respond,
)

router = APIRouter(prefix="/api/sessions", tags=["sessions"])

Directive = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000)]
JsonObject = dict[str, Any]


class NewSession(Body):
    """A session to create. Without objectives it has those of its agent; constraints are added to the agent's."""

    name: Name
    agent: Name
    objectives: list[Directive] | None = Field(None, max_length=DIRECTIVES_MAX)
    constraints: list[Directive] | None = Field(None, max_length=DIRECTIVES_MAX)


class Session(BaseModel):
    """A session, from its anchor."""

    name: str
    workspace: str
    agent: str
    agent_version: int
    status: Status
    created: bool = Field(description="true: this request created it")
    sequence: int = Field(description="journal sequence of its anchor")
    objectives: list[str]
    constraints: list[str]


class Held(BaseModel):
    """A reason that a session starts no turn now."""

    by: Literal["kill_switch", "journal", "pause", "quarantine", "rate_limit", "no_progress"]
    of: Literal["session", "agent", "workspace", "mesh"]
    who: str = Field(description="the person who ordered it; empty: the mesh itself")
    since: str | None
    until: str | None = Field(description="when it ends by itself; null: it does not")
    why: str


class Pause(BaseModel):
    """Who paused a session, when and why."""

    who: str
    since: str
    why: str


class Quarantine(BaseModel):
    """The damaged record that stopped a session."""

    sequence: int | None
    register_: str | None = Field(alias="register", description="the record's register within the session")
    reason: str
    since: str


class SessionRow(BaseModel):
    """A session in a list."""

    name: str
    workspace: str
    agent: str
    agent_version: int
    status: Status
    held: list[Held] = Field(description="what keeps it from a turn now")
    quarantine: Quarantine | None
    paused: Pause | None
    run_id: int = Field(description="its running or last turn")
    run_count: int
    generation: int
    last_run_id: int
    last_run_timestamp: str | None
    last_run_outcome: RunOutcome | None
    last_run_reason: str
    runs_without_progress: int
    runs_by_rules: int = Field(
        description="turns in a row that the pack's rules decided, since no model answered"
    )
    emergency: OpenEmergency | None = Field(
        description="open until an observation shows that it is over, or a person ends it"
    )
    inputs_refused: int
    next_check_at: str | None
    pace: Pace | None = Field(description="its rate limit account; null: no limit")
    turn_id: str | None = Field(description="the running turn")
    created_at: str
    changed_at: str
    sequence: int
    clipped: Clipped = False


class Spending(BaseModel):
    """Model calls, their tokens and their cost in the unit of the prices."""

    calls: int
    prompt: int
    completion: int
    estimated: int = Field(description="tokens that are estimated, for want of a credible report")
    cost: float


class DaySpending(Spending):
    """Of one day (UTC)."""

    day: str


class SessionUsage(BaseModel):
    """Since the session's start, and for each of its last days with a call, newest first."""

    ever: Spending
    days: list[DaySpending]


class Words(BaseModel):
    """What the model said last."""

    run_id: int
    at: str
    text: str


class SessionDetail(SessionRow):
    """A session with its anchor."""

    pending_inputs: int
    effects: dict[str, int] = Field(description="number of effects by state")
    damaged_records: int
    usage: SessionUsage
    last_words: Words | None = Field(description="null: the model has said nothing yet")
    anchor: Anchor


# ---------------------------------------------------------------- routes


@router.post(
    "",
    status_code=201,
    response_model=Session,
    responses={**CONFLICT, 200: {"model": Session, "description": "It existed already"}},
)
async def create_session(
    body: NewSession, parts: PartsDep, workspace: WorkspaceDep, response: Response
) -> Session:
    """Create a session of an agent. Repeating the request returns the existing session with status 200."""
    session = await create(parts, SessionRef(workspace, body.name), body)
    response.status_code = 201 if session.created else 200
    return session


@router.get("", responses=answers(Page[SessionRow]))
async def list_sessions(
    parts: PartsDep, workspace: WorkspaceDep, window: WindowDep, status: Filter = None
) -> JSONResponse:
    """List the sessions of the workspace by name."""
    answer = await read_page(parts, "sessions", window, {"workspace": workspace, "status": status})
    await add_holds(parts, workspace, answer.result["data"])
    return respond(answer)


@router.get("/{session}", responses=answers(SessionDetail))
async def get_session(parts: PartsDep, ref: RefDep, at_least: AtLeast = None) -> JSONResponse:
    """Show a session: its anchor, what holds it, its effects by state, its usage."""
    answer = await read(parts, "session", {"workspace": ref.workspace, "session": ref.session}, at_least)
    await add_holds(parts, ref.workspace, [answer.result])
    return respond(answer)


# ---------------------------------------------------------------- finding


async def find(parts: Parts, ref: SessionRef) -> tuple[Anchor, int]:
    """The session's anchor and its sequence.

    Raises:
        NotFound: the leader does not know the session either. Unavailable.
    """
    try:
        anchor, sequence = await parts.journal.read_anchor(ref, parts.seen.sequence)
    except NotFound:
        # A replica that lags does not know a session that another gateway has just created.
        newest = (await parts.bus.stream_state(parts.committer.stream)).last_sequence
        anchor, sequence = await parts.journal.read_anchor(ref, newest)
    parts.seen.note(sequence)
    return anchor, sequence


async def find_living(parts: Parts, ref: SessionRef) -> tuple[Anchor, int]:
    """As `find`.

    Raises:
        SessionDeleted.
    """
    anchor, sequence = await find(parts, ref)
    if anchor.status == "deleted":
        raise deleted(ref)
    return anchor, sequence


def deleted(ref: SessionRef) -> SessionDeleted:
    return SessionDeleted(f"the session {ref.session} was deleted", hint="its name is not used again")


# ---------------------------------------------------------------- creation


async def create(parts: Parts, ref: SessionRef, wanted: NewSession) -> Session:
    """Create the session, or check that the existing one is what this request would have created.

    Raises:
        NotFound: there is no such agent. Conflict: it exists and differs. SessionDeleted. Unavailable. Damaged.
    """
    agent = await parts.agents.get(ref.workspace, wanted.agent)
    try:
        anchor, sequence = await find(parts, ref)
        created = False
    except NotFound:
        anchor, sequence, created = await _append(parts, ref, agent, wanted)
    _check_agent(anchor, wanted.agent)
    if not created:
        await _check_directives(parts, ref, anchor, wanted)
    # A gateway that dies before this leaves a session without a binding; repeating the request binds it.
    reached(Edge.GATEWAY_BINDING_BEFORE)
    await parts.agents.bind(ref, wanted.agent)
    reached(Edge.GATEWAY_BINDING_AFTER)
    name, _, agent_version = anchor.agent.partition("@")
    return Session(
        name=anchor.session,
        workspace=anchor.workspace,
        agent=name,
        agent_version=int(agent_version or 0),
        status=anchor.status,
        created=created,
        sequence=sequence,
        objectives=list(anchor.objectives),
        constraints=list(anchor.constraints),
    )


async def _append(
    parts: Parts, ref: SessionRef, agent: AgentSpec, wanted: NewSession
) -> tuple[Anchor, int, bool]:
    at_ms = parts.clock.now_ms()
    objectives = agent.objectives if wanted.objectives is None else tuple(wanted.objectives)
    order = Create(ref, agent.at_version, objectives, _constraints(agent, wanted), at_ms, by=parts.writer)
    events = decide(SessionState(), order)
    try:
        reached(Edge.GATEWAY_SESSION_BEFORE)
        state = await parts.journal.append(ref, SessionState(), events, at_ms, parts.commit_deadline_s)
        reached(Edge.GATEWAY_SESSION_AFTER)
    except Fenced:
        anchor, sequence = await find(parts, ref)
        return anchor, sequence, False
    assert state.anchor is not None  # noqa: S101 - just created
    parts.seen.note(state.head)
    return state.anchor, state.head, True


def _constraints(agent: AgentSpec, wanted: NewSession) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*agent.constraints, *(wanted.constraints or ()))))


async def _check_directives(parts: Parts, ref: SessionRef, anchor: Anchor, wanted: NewSession) -> None:
    """Compare only what the request names: the agent's definition, or people, may have changed the rest since."""
    differing = []
    if wanted.objectives is not None and tuple(wanted.objectives) != anchor.objectives:
        differing.append("objectives")
    if wanted.constraints is not None:
        # The agent's constraints when the session was created, not its current ones.
        agent = await parts.agents.get(ref.workspace, (await _first(parts, ref)).agent)
        if set(_constraints(agent, wanted)) != set(anchor.constraints):
            differing.append("constraints")
    if differing:
        raise Conflict(
            f"the session {ref.session} exists and has other {' and '.join(differing)}",
            hint=f"`anchorwatch anchor {ref.session}` shows them; leave them out of the request, or choose another name",
        )


async def _first(parts: Parts, ref: SessionRef) -> Anchor:
    """The anchor that the session was created with."""
    page = await parts.bus.range(parts.committer.stream, SessionSubjects(ref).anchor_change, 1, limit=1)
    if not page.messages:
        raise Unavailable("the answering server lags", hint="try again")
    return decode_anchor(page.messages[0].payload)[0]


def _check_agent(anchor: Anchor, agent: str) -> None:
    if anchor.status == "deleted":
        raise SessionDeleted(
            f"the session {anchor.session} was deleted; its name is not used again",
            hint="choose another name",
        )
    current = anchor.agent.partition("@")[0]
    if current != agent:
        raise Conflict(
            f"the session {anchor.session} exists and belongs to agent {current}", hint="choose another name"
        )


# ---------------------------------------------------------------- holds


async def add_holds(parts: Parts, workspace: str, sessions: Sequence[JsonObject]) -> None:
    """Add `held` to each of these session rows of a workspace.

    Raises:
        Unavailable, Damaged.
    """
    limits = _Limits(parts)
    switches = [each for each in await parts.switches.all(workspace) if each.on] if sessions else []
    for row in sessions:
        found = [
            *(_held_by_switch(each) for each in switches if _holds(each, row) and row["status"] != "deleted"),
            *_held_by_state(row),
            *await _held_by_limits(limits, row),
        ]
        row["held"] = [each.model_dump() for each in found]


async def delay_wakes(parts: Parts, session: JsonObject, wakes: Sequence[JsonObject]) -> None:
    """Set `due_at` of a session's pending wakes no earlier than its limits allow.

    Raises:
        Unavailable, Damaged.
    """
    limit = await _Limits(parts).of(session)
    if limit is None:
        return
    held = limit.rate.held(_anchor(session), limit.now_ms)
    held = held.and_until(limit.account.hold(limit.now_ms) if limit.account else None)
    for wake in wakes:
        if wake.get("due_at") and (until_ms := held.until_ms(_input(wake))) > from_iso(wake["due_at"]):
            wake["due_at"] = iso(until_ms)


def _holds(switch: Switch, row: JsonObject) -> bool:
    names = {"session": str(row["name"]), "agent": str(row["agent"])}
    return names.get(switch.scope, switch.name) == switch.name


def _held_by_switch(switch: Switch) -> Held:
    return Held(
        by="journal" if switch.is_journal_hold else "kill_switch",
        of=switch.scope,
        who=switch.by,
        since=iso(switch.at_ms),
        until=None,
        why=switch.reason,
    )


def _held_by_state(row: JsonObject) -> list[Held]:
    found = []
    if row["status"] == "paused" and row.get("paused"):
        found.append(Held(by="pause", of="session", until=None, **row["paused"]))
    if damage := row.get("quarantine"):
        found.append(
            Held(
                by="quarantine",
                of="session",
                who="",
                since=damage["since"],
                until=None,
                why=damage["reason"],
            )
        )
    return found


async def _held_by_limits(limits: _Limits, row: JsonObject) -> list[Held]:
    limit = await limits.of(row)
    if limit is None:
        return []
    found = []
    if (shared := limit.account.hold(limit.now_ms) if limit.account else None) is not None:
        since = limit.account.pace.started_at if limit.account and limit.account.pace else None
        found.append(_held_by_limit("rate_limit", since, shared, "agent_turns_per_hour"))
    if (hold := limit.rate.hold(_anchor(row), limit.now_ms)) is not None and hold.why == "no_progress":
        why = f"{row['runs_without_progress']} turns in a row"
        found.append(_held_by_limit("no_progress", row["last_run_timestamp"], hold, why))
    elif hold is not None:
        found.append(_held_by_limit("rate_limit", row["pace"]["started_at"], hold, hold.why))
    return found


def _held_by_limit(by: Literal["rate_limit", "no_progress"], since: str | None, hold: Hold, why: str) -> Held:
    return Held(by=by, of="agent", who="", since=since, until=iso(hold.at_ms), why=why)


@dataclass(frozen=True, slots=True)
class _Limit:
    """The limits of a session at ``now_ms``. ``account``: shared by the sessions of its agent."""

    now_ms: int
    rate: Rate
    account: Account | None


class _Limits:
    """Finds the limits of sessions, of each agent once."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._agents: dict[str, _Limit | None] = {}

    async def of(self, row: JsonObject) -> _Limit | None:
        """The limits of an idle session; no other session starts a turn by itself."""
        if row["status"] != "idle":
            return None
        name = str(row["agent"])
        if name not in self._agents:
            self._agents[name] = await self._find(SessionRef(row["workspace"], row["name"]), name)
        return self._agents[name]

    async def _find(self, ref: SessionRef, name: str) -> _Limit | None:
        try:
            agent = await self._parts.agents.get(ref.workspace, name)
        except NotFound:
            return None
        shared = shared_rate_of(agent, self._parts.settings)
        account = await self._parts.paces.read(ref, name, shared) if shared else None
        return _Limit(self._parts.clock.now_ms(), rate_of(agent, self._parts.settings), account)


def _anchor(row: JsonObject) -> Anchor:
    """The part of the anchor that limits depend on."""
    return Anchor(
        workspace=row["workspace"],
        session=row["name"],
        agent=row["agent"],
        pace=Pace(**row["pace"]) if row["pace"] else None,
        runs_without_progress=row["runs_without_progress"],
        last_run_timestamp=row["last_run_timestamp"],
    )


def _input(wake: JsonObject) -> Input:
    return Input(wake["sequence"], wake["input_id"], wake["kind"], PRIORITIES[wake["priority"]], 0)
