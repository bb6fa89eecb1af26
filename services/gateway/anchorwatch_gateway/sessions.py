"""Making sessions: once, however often it is asked."""

from __future__ import annotations

from anchorwatch.codec import decode_anchor
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.errors import Conflict, Fenced, NotFound, SessionDeleted, Unavailable
from anchorwatch.core.names import SessionRef
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import Create
from anchorwatch.core.session.decide import decide
from anchorwatch.edges import Edge, reached
from anchorwatch.topology.subjects import SessionSubjects

from anchorwatch_gateway.bodies import NewSession
from anchorwatch_gateway.parts import Parts
from anchorwatch_gateway.replies import Session


async def create(parts: Parts, ref: SessionRef, wanted: NewSession) -> Session:
    """Make the session, or find that the one which is there already is what this request would have made.

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
    # A request that died between the two leaves a session that is bound to nobody; asked again, it is bound here.
    reached(Edge.GATEWAY_BINDING_BEFORE)
    await parts.agents.bind(ref, wanted.agent)
    reached(Edge.GATEWAY_BINDING_AFTER)
    return as_reply(anchor, sequence, created=created)


async def find(parts: Parts, ref: SessionRef) -> tuple[Anchor, int]:
    """The session's anchor and its sequence.

    Raises:
        NotFound: also the leader's last word knows no such session. Unavailable.
    """
    try:
        anchor, sequence = await parts.journal.read_anchor(ref, parts.seen.sequence)
    except NotFound:
        # A copy that lags does not know a session that was just made elsewhere.
        newest = (await parts.bus.stream_state(parts.committer.stream)).last_sequence
        anchor, sequence = await parts.journal.read_anchor(ref, newest)
    parts.seen.note(sequence)
    return anchor, sequence


async def find_living(parts: Parts, ref: SessionRef) -> tuple[Anchor, int]:
    """As `find`, for those who want it to do something.

    Raises:
        SessionDeleted: it was deleted.
    """
    anchor, sequence = await find(parts, ref)
    if anchor.status == "deleted":
        raise gone(ref)
    return anchor, sequence


def gone(ref: SessionRef) -> SessionDeleted:
    """What is said of a session that was deleted."""
    return SessionDeleted(f"the session {ref.session} was deleted", hint="its name is not used again")


def as_reply(anchor: Anchor, sequence: int, *, created: bool) -> Session:
    """A session as its maker sees it."""
    name, _, version = anchor.agent.partition("@")
    return Session(
        name=anchor.session,
        workspace=anchor.workspace,
        agent=name,
        agent_version=int(version or 0),
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
    assert state.anchor is not None  # noqa: S101 - it was just made
    parts.seen.note(state.head)
    return state.anchor, state.head, True


def _constraints(agent: AgentSpec, wanted: NewSession) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*agent.constraints, *(wanted.constraints or ()))))


async def _check_directives(parts: Parts, ref: SessionRef, anchor: Anchor, wanted: NewSession) -> None:
    """What the request does not say is not compared: the agent's definition, and people, may have changed it since."""
    differs = []
    if wanted.objectives is not None and tuple(wanted.objectives) != anchor.objectives:
        differs.append("objectives")
    if wanted.constraints is not None:
        # The constraints of the agent as it was when the session was made: it may have other ones by now.
        agent = await parts.agents.get(ref.workspace, (await _first(parts, ref)).agent)
        if set(_constraints(agent, wanted)) != set(anchor.constraints):
            differs.append("constraints")
    if differs:
        raise Conflict(
            f"the session {ref.session} exists and has other {' and '.join(differs)}",
            hint=f"`anchorwatch anchor {ref.session}` shows them; leave them out of the request, or choose another name",
        )


async def _first(parts: Parts, ref: SessionRef) -> Anchor:
    """The anchor that the session was made with."""
    page = await parts.bus.range(parts.committer.stream, SessionSubjects(ref).anchor, 1, limit=1)
    if not page.messages:
        raise Unavailable("the answering server is behind", hint="try again")
    return decode_anchor(page.messages[0].payload)[0]


def _check_agent(anchor: Anchor, agent: str) -> None:
    if anchor.status == "deleted":
        raise SessionDeleted(
            f"the session {anchor.session} was deleted; its name is not used again",
            hint="choose another name",
        )
    theirs = anchor.agent.partition("@")[0]
    if theirs != agent:
        raise Conflict(
            f"the session {anchor.session} exists and belongs to agent {theirs}", hint="choose another name"
        )
