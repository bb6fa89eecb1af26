"""Answering on ``aw.rpc.planner.<verb>``, JSON in and JSON out: what a model would be shown, and what it was shown.

``context``: the request that the session's next step would send, block by block. ``replay``: the requests of a past turn, made
again from the journal and compared with what was recorded; with ``model``, that model's decisions beside the recorded
ones. ``models``: the models that a workspace's agents ask. Nothing is written and no call is run.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import structlog
from anchorwatch.bus.port import Bus, Subscription
from anchorwatch.context import prompt
from anchorwatch.context.blocks import blocks
from anchorwatch.context.digest import request_digest
from anchorwatch.context.replay import Asked, asked
from anchorwatch.context.template import TEMPLATE
from anchorwatch.core.errors import AnchorWatchError, BadInput, NotFound
from anchorwatch.core.names import SessionRef, check_name
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.apply import Recorded
from anchorwatch.core.session.events import AnchorChanged
from anchorwatch.core.session.joining import named
from anchorwatch.core.session.state import Turn
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.models.port import ModelRequest
from anchorwatch.service.context import Clock
from anchorwatch.topology.subjects import RPC_PLANNER

from anchorwatch_planner.fitting import Fitter
from anchorwatch_planner.mind import Bounds, Mind
from anchorwatch_planner.think import Observe, shortened

QUEUE = "planner"
STEPS_MAX = 200


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers whoever asks; one planner of all answers each question.

    ``other_model``: a mind with another model, named. ``models``: those of a workspace.
    """

    bus: Bus
    sessions: SessionJournal
    fitter: Fitter
    bounds: Bounds
    mind_of: Callable[[str, str], Awaitable[Mind]]
    other_model: Callable[[Mind, str], Mind]
    models: Callable[[str], Awaitable[list[dict[str, Any]]]]
    observe: Observe
    clock: Clock
    log: structlog.stdlib.BoundLogger

    async def listen(self) -> Subscription:
        return await self.bus.subscribe(RPC_PLANNER.filter(), self._handle, queue=QUEUE)

    async def _handle(self, subject: str, payload: bytes) -> bytes:
        verb = subject.rpartition(".")[2]
        try:
            params = json.loads(payload or b"{}")
            answer: dict[str, Any] = {"result": await self._answer(verb, params)}
        except AnchorWatchError as error:
            answer = {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
        except (KeyError, ValueError, TypeError):
            answer = {"error": {"code": BadInput.code, "message": "the question cannot be read", "hint": ""}}
        except Exception as error:
            self.log.exception("a question could not be answered", verb=verb)
            why = f"the planner failed to answer: {type(error).__name__}"
            answer = {"error": {"code": "unavailable", "message": why, "hint": "its log says more"}}
        return json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")

    async def _answer(self, verb: str, params: dict[str, Any]) -> object:
        workspace = check_name(params["workspace"])
        if verb == "models":
            return await self.models(workspace)
        ref = SessionRef(workspace, check_name(params["session"]))
        match verb:
            case "context":
                return await self._context(ref)
            case "replay":
                return await self._replay(ref, str(params["turn"]), params.get("model"))
            case _:
                raise NotFound(f"the planner knows no question {verb!r}")

    # --- context

    async def _context(self, ref: SessionRef) -> dict[str, Any]:
        state = await self.sessions.load(ref, 0)
        if state.anchor is None:
            raise NotFound(f"there is no session {ref.session}", hint="`anchorwatch sessions` lists them")
        mind = await self.mind_of(ref.workspace, _agent(state))
        observation = shortened(await self.observe(ref.workspace, mind.agent.name, tuple(state.anchor.facts)))
        fitted, budget, first = self.fitter.preview(_about_to_run(state, self.clock), mind, observation)
        assert fitted.state.turn is not None  # noqa: S101 - about to run
        return {
            "session": ref.session,
            "agent": mind.agent.at_version,
            "model": mind.model.name,
            "run_id": fitted.state.turn.run_id,
            "tokens": fitted.tokens,
            "budget": budget,
            "rung": fitted.rung.name.lower(),
            "first": first,
            "template": TEMPLATE,
            "summary": asdict(fitted.state.summary) if fitted.state.summary else None,
            "blocks": [
                block.to_json()
                for block in blocks(fitted.state, fitted.request, fitted.rung, mind.model.count)
            ],
        }

    # --- replay

    async def _replay(self, ref: SessionRef, turn: str, model: str | None) -> dict[str, Any]:
        records = await self.sessions.records(ref)
        run = _run_of(records, turn)
        steps = asked(records, run)[:STEPS_MAX]
        if not steps:
            raise NotFound(f"run {run} of {ref.session} asked no model", hint="its timeline says what it did")
        made = [await self._made(ref, step, model) for step in steps]
        checked = [each["same"] for each in made if each["same"] is not None]
        return {"session": ref.session, "run_id": run, "same": bool(checked) and all(checked), "steps": made}

    async def _made(self, ref: SessionRef, step: Asked, model: str | None) -> dict[str, Any]:
        mind = await self.mind_of(ref.workspace, step.agent)
        recorded = step.head.prompt
        answer: dict[str, Any] = {
            "step": step.head.step,
            "model": recorded.model if recorded else "",
            "recorded_sha256": recorded.sha256 if recorded else "",
            "made_sha256": "",
            "same": None,
            "why_not": step.why_not,
            "decided": _decision(step.decided.text, step.decided.calls),
        }
        if step.why_not:
            return answer
        request = prompt.build(
            step.state, mind.agent, mind.pack, mind.tools, step.observation,
            heartbeat_s=self.bounds.heartbeat_of(mind), rung=step.rung, said=named(step.state, step.head.joined),
        )  # fmt: skip
        answer["made_sha256"] = request_digest(request)
        answer["same"] = answer["made_sha256"] == answer["recorded_sha256"]
        if not answer["same"]:
            answer["why_not"] = "the pack's prompt or tools, or this release's code, is not what it was"
        if model is not None:
            answer["other"] = await self._other(mind, request, model)
        return answer

    async def _other(self, mind: Mind, request: ModelRequest, model: str) -> dict[str, Any]:
        other = self.other_model(mind, model)
        try:
            reply = await other.model.complete(request, self.bounds.model_timeout_s)
        except AnchorWatchError as error:
            return {"model": model, "error": {"code": error.code, "message": error.message}}
        finally:
            await other.model.close()
        calls = tuple((call.name, call.arguments or call.raw) for call in reply.decision.calls)
        return {
            "model": reply.model or model,
            **_decision(reply.decision.text, calls),
            "usage": reply.usage.known(),
        }


def _agent(state: SessionState) -> str:
    """The agent's newest version: what the next turn would be of."""
    return state.anchor.agent.partition("@")[0] if state.anchor else ""


def _about_to_run(state: SessionState, clock: Clock) -> SessionState:
    """The state as the next turn would find it: with what is pending taken up. A running turn stays as it is."""
    if state.turn is not None or state.anchor is None:
        return state
    turn = Turn(
        run_id=state.anchor.run_id + 1,
        turn_id="",
        started_at_ms=clock.now_ms(),
        held_since=0,
        woken_by=0,
        inputs=state.pending,
    )
    return state._replace(pending=(), turn=turn)


def _run_of(records: Sequence[Recorded], turn: str) -> int:
    """The run that a turn's id or number names.

    Raises:
        NotFound: the session had no such turn.
    """
    begun = {
        event.anchor.turn.id: event.anchor.run_id
        for event in (record.event for record in records)
        if isinstance(event, AnchorChanged) and event.anchor.turn is not None
    }
    run = begun.get(turn) or (int(turn) if turn.isdecimal() else 0)
    if run not in begun.values():
        raise NotFound(f"there is no turn {turn[:80]!r}", hint="`anchorwatch timeline SESSION` names them")
    return run


def _decision(text: str, calls: tuple[tuple[str, object], ...]) -> dict[str, Any]:
    return {"text": text, "calls": [{"tool": tool, "arguments": given} for tool, given in calls]}
