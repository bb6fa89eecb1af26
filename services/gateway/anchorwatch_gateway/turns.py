"""What a session did: turns, conversation, timeline, wake-ups; and what its model sees. Memory and the planner answer."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from anchorwatch.core.anchor import PromptProof, RunOutcome
from anchorwatch.core.effect.state import OutcomeState
from anchorwatch.core.names import SessionRef
from anchorwatch.core.session.state import InputKind
from anchorwatch.core.session.wakes import Disposition
from anchorwatch.topology.subjects import RPC_PLANNER
from fastapi import APIRouter, Path
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, StringConstraints

from anchorwatch_gateway.outputs import Effect
from anchorwatch_gateway.parts import Parts, ask
from anchorwatch_gateway.requests import (
    SEQUENCE_MAX,
    TOKEN_PATTERN,
    AtLeast,
    Body,
    Clipped,
    Filter,
    Page,
    PartsDep,
    PriorityName,
    RefDep,
    TurnFilter,
    TurnName,
    WindowDep,
    answers,
    read,
    read_page,
    respond,
    respond_page,
)
from anchorwatch_gateway.sessions import Words, delay_wakes

router = APIRouter(prefix="/api/sessions", tags=["sessions"])

CONTEXT_TIMEOUT_S = 15.0

InPrompt = Literal["whole", "shortened", "skipped", "summary", "archived"]
IN_PROMPT = "how the session's last request showed its turn"


class Usage(BaseModel):
    """Tokens of model calls; a field that is not known is absent."""

    calls: int = Field(0, description="model calls, discarded answers included (turns only)")
    prompt: int = 0
    completion: int = 0
    estimated: int = Field(0, description="tokens that are estimated, for want of a credible report")
    cost: float = Field(0.0, description="in the unit of the prices, if prices are set")


class Wake(BaseModel):
    """An input, an outcome or an order, and how it was handled."""

    input_id: str
    session: str
    sequence: int
    kind: InputKind | Literal["outcome", "control", "unreadable"]
    priority: PriorityName
    source: str
    type: str
    text: str
    by: str
    accepted_at: str
    expires_at: str | None
    disposition: Literal["pending"] | Disposition
    run_id: int | None
    turn_id: str | None
    reason: str
    clipped: Clipped = False


class PendingWake(Wake):
    """A wake in the list of a session's wakes."""

    due_at: str | None = Field(
        None, description="of a pending input: when it starts a turn by itself, limits included"
    )


class Generation(BaseModel):
    """A planner that held a turn."""

    generation: int
    execution_id: str | None
    sequence: int
    at: str


class PlainTurn(BaseModel):
    """A turn."""

    turn_id: str
    run_id: int
    session: str
    status: Literal["in_progress", "waiting", "completed", "failed", "cancelled"]
    outcome: RunOutcome | None
    reason: str
    started_at: str
    ended_at: str | None
    sequence: int
    ended_sequence: int | None
    woken_by: int = Field(description="journal sequence of the message that started it; 0: a sweep did")
    inputs_through: int
    generations: list[Generation]


class Turn(PlainTurn):
    """A turn in a list."""

    in_prompt: InPrompt = Field(description=IN_PROMPT)
    steps_count: int
    inputs_count: int
    usage: Usage
    prompt: PromptProof | None = Field(description="proof of its last prompt")
    clipped: Clipped = False


class Seen(BaseModel):
    """The observation of a step."""

    digest: str
    at: str


class RejectedCall(BaseModel):
    """A call of the model that is not valid, and why."""

    n: int
    tool: str
    label: str
    raw: str
    reason: str


class FailedModel(BaseModel):
    """A model that did not answer."""

    model: str
    code: str


class Step(BaseModel):
    """A step of a turn, with its calls."""

    step: int
    at: str
    sequence: int
    text: str
    observation: Seen | None
    prompt: PromptProof | None
    usage: Usage
    answered_by: str = Field("", description="the model that answered, if the first one of the agent did not")
    in_vain: list[FailedModel] = Field([], description="the models that did not answer, if any")
    rejected: list[RejectedCall]
    calls: list[Effect]


class TurnDetail(Turn):
    """A turn with its inputs and steps."""

    inputs: list[Wake]
    steps: list[Step]


class HandledInput(Wake):
    """An input or order, the turn that handled it, and that turn's last words."""

    turn: PlainTurn | None = Field(description="null: none has handled it")
    answer: Words | None = Field(description="null: nothing was said; while the turn runs, its words so far")


class _Item(BaseModel):
    id: str
    role: Literal["user", "assistant", "system", "tool"]
    at: str
    session: str
    run_id: int | None
    turn_id: str | None
    step: int | None
    sequence: int
    in_prompt: InPrompt = Field("whole", description=f"{IN_PROMPT}; absent: it belongs to none yet")
    clipped: Clipped = False


class MessageItem(_Item):
    """What a person or the model said."""

    type: Literal["message"]
    text: str
    input_id: str = Field("", description="of an accepted input")
    kind: str = Field("", description="of an accepted input: its kind")
    by: str = Field("", description="who sent it; absent: the model said it")


class ToolCallItem(_Item):
    """A call of the model."""

    type: Literal["tool_call"]
    n: int
    tool: str
    label: str
    call: str = Field("", description="SESSION/RUN.STEP.N; absent: the call was rejected")
    args: dict[str, Any] = Field({}, description="absent: the call was rejected")
    raw: str = Field("", description="of a rejected call: what the model wrote")


class ToolResultItem(_Item):
    """The outcome of a call."""

    type: Literal["tool_result"]
    n: int
    tool: str
    state: Literal["rejected"] | OutcomeState
    text: str
    call: str = Field("", description="SESSION/RUN.STEP.N; absent: the call was rejected")


class ObservationItem(_Item):
    """What the model saw of the real system."""

    type: Literal["observation"]
    text: str
    digest: str


class NoteItem(_Item):
    """An event, a tick or another input that is not a message."""

    type: Literal["note"]
    text: str
    input_id: str
    kind: InputKind
    source: str = Field("", description="of an event")
    event_type: str = Field("", description="of an event")


Item = Annotated[
    MessageItem | ToolCallItem | ToolResultItem | ObservationItem | NoteItem, Field(discriminator="type")
]


class Change(BaseModel):
    """A field before and after an order."""

    from_: str | list[str] | None = Field(None, alias="from", description="absent: unknown")
    to: str | list[str] | None


class TimelineEntry(BaseModel):
    """What one journal record says, why it was written, and its evidence. Ids and evidence that do not apply are absent."""

    sequence: int
    at: str
    session: str
    kind: str = Field(description="the record's kind, or `damaged`")
    what: str
    why: str
    who: str
    run_id: int | None
    turn_id: str | None
    generation: int = 0
    input_id: str = ""
    call: str = ""
    artifact_id: str = ""
    delivery_id: str = ""
    through_run: int = Field(0, description="of a summary: the last run that it replaces")
    facts: dict[str, bool | int | float | str | None] = Field(
        default_factory=dict, description="of a decision: the facts that it was made on; null is unknown"
    )
    facts_omitted: int = Field(0, description="the number of further facts")
    data: str = Field("", description="of an event: its data in one line")
    attributes: str = Field("", description="of a CloudEvent: its attributes in one line")
    said: str = Field(
        "", description="of the end of a turn: the model's last words, 1,000 characters at most"
    )
    changes: dict[str, Change] = Field(
        default_factory=dict, description="of an order: the changed fields of the anchor"
    )
    in_prompt: InPrompt = Field("whole", description=f"{IN_PROMPT}; absent: it belongs to none")
    clipped: Clipped = False


class Block(BaseModel):
    """A part of a request."""

    name: str
    tokens: int
    left_out: str = Field(description="what is not shown; empty: nothing is left out")
    text: str


class SummaryText(BaseModel):
    """The summary that replaces the oldest turns."""

    through_run: int
    turns: int
    text: str
    source: Literal["model", "records"]


class Context(BaseModel):
    """The request that the session's next step would send."""

    session: str
    agent: str
    model: str
    run_id: int
    tokens: int
    budget: int
    rung: str = Field(description="how far the conversation is shortened")
    first: str = Field(description="what happens before the request is sent; empty: nothing")
    template: int | str
    summary: SummaryText | None
    blocks: list[Block]


class Replay(Body):
    """The turn whose requests are rebuilt, and another model to ask."""

    turn: Annotated[TurnName, StringConstraints(pattern=TOKEN_PATTERN)] = Field(
        description="the turn's id or run number"
    )
    model: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="a model's name at the configured endpoint, or `rules`",
    )


class DecidedCall(BaseModel):
    """A call in a decision. ``arguments``: an object, or the text of a call that is not valid."""

    tool: str
    arguments: Any


class Decision(BaseModel):
    """What a model decided."""

    text: str
    calls: list[DecidedCall]


class ModelError(BaseModel):
    """Why a model did not answer."""

    code: str
    message: str


class OtherDecision(BaseModel):
    """What the other model decided, or its error."""

    model: str
    text: str = ""
    calls: list[DecidedCall] = []
    usage: Usage = Usage()
    error: ModelError | None = Field(None, description="absent: it answered")


class ReplayedStep(BaseModel):
    """A rebuilt request beside the recorded one."""

    step: int
    model: str
    recorded_sha256: str
    made_sha256: str
    same: bool | None = Field(description="null: the request cannot be rebuilt")
    why_not: str
    decided: Decision
    other: OtherDecision | None = Field(None, description="absent: no other model is named")


class Replayed(BaseModel):
    """A turn's requests, rebuilt from the journal."""

    session: str
    run_id: int
    same: bool
    steps: list[ReplayedStep]


# ---------------------------------------------------------------- routes


@router.get("/{session}/turns", responses=answers(Page[Turn]))
async def list_turns(parts: PartsDep, ref: RefDep, window: WindowDep, status: Filter = None) -> JSONResponse:
    """List the turns of the session."""
    return await respond_page(parts, "turns", window, {**_of(ref), "status": status})


@router.get("/{session}/turns/{turn}", responses=answers(TurnDetail))
async def get_turn(parts: PartsDep, ref: RefDep, turn: str, at_least: AtLeast = None) -> JSONResponse:
    """Show a turn, by its id or run number: its inputs, steps, calls and their outcomes."""
    return respond(await read(parts, "turn", {**_of(ref), "turn": turn[:128]}, at_least))


@router.get("/{session}/items", responses=answers(Page[Item]))
async def list_items(
    parts: PartsDep,
    ref: RefDep,
    window: WindowDep,
    type: Filter = None,  # noqa: A002 - a query parameter
    turn: TurnFilter = None,
) -> JSONResponse:
    """List the conversation: messages, tool calls and results, observations, notes."""
    return await respond_page(parts, "items", window, {**_of(ref), "type": type, "turn": turn})


@router.get("/{session}/conversation", responses=answers(Page[MessageItem]))
async def list_conversation(
    parts: PartsDep, ref: RefDep, window: WindowDep, turn: TurnFilter = None
) -> JSONResponse:
    """List what people wrote and what the model said, whole."""
    return await respond_page(parts, "items", window, {**_of(ref), "type": "message", "turn": turn})


@router.get("/{session}/inputs/{sequence}", responses=answers(HandledInput))
async def get_input(
    parts: PartsDep,
    ref: RefDep,
    sequence: Annotated[int, Path(ge=1, le=SEQUENCE_MAX, description="journal sequence of its receipt")],
    at_least: AtLeast = None,
) -> JSONResponse:
    """Show the outcome of an input, and the answer of its turn."""
    return respond(await read(parts, "input", {**_of(ref), "sequence": sequence}, at_least))


@router.get("/{session}/timeline", responses=answers(Page[TimelineEntry]))
async def list_timeline(
    parts: PartsDep, ref: RefDep, window: WindowDep, turn: TurnFilter = None
) -> JSONResponse:
    """List what happened, one sentence for each record."""
    return await respond_page(parts, "timeline", window, {**_of(ref), "turn": turn})


@router.get("/{session}/wakes", responses=answers(Page[PendingWake]))
async def list_wakes(
    parts: PartsDep,
    ref: RefDep,
    window: WindowDep,
    disposition: Filter = None,
    kind: Filter = None,
) -> JSONResponse:
    """List every input, outcome and order, and how it was handled; pending inputs with the time that they are due."""
    answer = await read_page(parts, "wakes", window, {**_of(ref), "disposition": disposition, "kind": kind})
    wakes = answer.result["data"]
    if any(wake.get("due_at") for wake in wakes):
        session = await read(parts, "session", _of(ref))
        await delay_wakes(parts, session.result, wakes)
    return respond(answer)


@router.get("/{session}/context", responses=answers(Context))
async def show_context(parts: PartsDep, ref: RefDep) -> JSONResponse:
    """Show the request of the session's next step, block by block with its tokens. Nothing is sent."""
    return await _ask_planner(parts, ref, "context", CONTEXT_TIMEOUT_S)


@router.post("/{session}/replay", responses=answers(Replayed))
async def replay_turn(body: Replay, parts: PartsDep, ref: RefDep) -> JSONResponse:
    """Rebuild a past turn's requests and compare them with the recorded ones; with ``model``, ask that model, too.

    No call is run and nothing is recorded.
    """
    # Every step asks the other model.
    timeout_s = CONTEXT_TIMEOUT_S + (parts.settings.model_timeout_s if body.model else 0)
    return await _ask_planner(parts, ref, "replay", timeout_s, turn=body.turn, model=body.model)


async def _ask_planner(
    parts: Parts, ref: SessionRef, verb: str, timeout_s: float, **params: str | None
) -> JSONResponse:
    question = {**_of(ref), **params}
    answer = await ask(parts.bus, RPC_PLANNER.at(verb=verb), question, service="planner", timeout_s=timeout_s)
    return JSONResponse(answer["result"])


def _of(ref: SessionRef) -> dict[str, str]:
    return {"workspace": ref.workspace, "session": ref.session}
