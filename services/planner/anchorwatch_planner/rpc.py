"""Answers requests on ``aw.rpc.planner.<verb>``, JSON in and out. Nothing is written and no command runs.

- ``context``: the request that the session's next step would send, block by block.
- ``replay``: the requests of a past turn, rebuilt from the journal and compared with their records; with ``model``, that
  model's decisions beside the recorded ones.
- ``models``: the models that a workspace's agents call: their terms, counts and recent health.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import structlog
from anchorwatch.bus.port import Bus, Subscription
from anchorwatch.context import prompt
from anchorwatch.context.blocks import blocks
from anchorwatch.context.digest import request_digest
from anchorwatch.context.floor import fixed_tokens
from anchorwatch.context.replay import Asked, asked
from anchorwatch.context.template import TEMPLATE
from anchorwatch.core.errors import AnchorWatchError, BadInput, NotFound
from anchorwatch.core.names import SessionRef, check_name
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.apply import Recorded
from anchorwatch.core.session.events import AnchorChanged
from anchorwatch.core.session.joining import named
from anchorwatch.core.session.state import Turn
from anchorwatch.core.times import iso
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.models.corrected import CorrectedModel
from anchorwatch.models.health import Health
from anchorwatch.models.port import ModelRequest
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.service.context import Clock
from anchorwatch.topology.subjects import RPC_PLANNER

from anchorwatch_planner.fitting import Fitter
from anchorwatch_planner.runtimes import AgentRuntime, Bounds, Known, ModelRecords
from anchorwatch_planner.step import Observe, shortened

QUEUE = "planner"
STEPS_MAX = 200


@dataclass(frozen=True, slots=True)
class PlannerRpc:
    """Answers requests; one of all planners answers each.

    ``other_model``: a runtime with another model, by name. ``models``: the models of a workspace.
    """

    bus: Bus
    sessions: SessionJournal
    fitter: Fitter
    bounds: Bounds
    runtime_of: Callable[[str, str], Awaitable[AgentRuntime]]
    other_model: Callable[[AgentRuntime, str], AgentRuntime]
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
            answer = {"error": {"code": BadInput.code, "message": "the request cannot be read", "hint": ""}}
        except Exception as error:
            self.log.exception("rpc.failed", verb=verb)
            message = f"the planner failed to answer: {type(error).__name__}"
            answer = {"error": {"code": "unavailable", "message": message, "hint": "its log says more"}}
        return json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")

    async def _answer(self, verb: str, params: dict[str, Any]) -> object:
        workspace = check_name(params["workspace"])
        if verb == "models":
            return await self.models(workspace)
        ref = SessionRef(workspace, check_name(params["session"]))
        match verb:
            case "fixed":
                return await self._fixed(ref)
            case "context":
                return await self._context(ref)
            case "replay":
                return await self._replay(ref, str(params["turn"]), params.get("model"))
            case _:
                raise NotFound(f"unknown request {verb!r}")

    # --- context

    async def _context(self, ref: SessionRef) -> dict[str, Any]:
        state = await self.sessions.load(ref, 0)
        if state.anchor is None:
            raise NotFound(f"there is no session {ref.session}", hint="`anchorwatch sessions` lists them")
        runtime = await self.runtime_of(ref.workspace, _agent(state))
        observation = shortened(
            await self.observe(ref.workspace, runtime.agent.name, tuple(state.anchor.facts))
        )
        fitted, budget, first = self.fitter.preview(_about_to_run(state, self.clock), runtime, observation)
        assert fitted.state.turn is not None  # noqa: S101 - about to run
        return {
            "session": ref.session,
            "agent": runtime.agent.at_version,
            "model": runtime.model.name,
            "run_id": fitted.state.turn.run_id,
            "tokens": fitted.tokens,
            "budget": budget,
            "rung": fitted.rung.name.lower(),
            "first": first,
            "template": TEMPLATE,
            "summary": asdict(fitted.state.summary) if fitted.state.summary else None,
            "blocks": [
                block.to_json()
                for block in blocks(fitted.state, fitted.request, fitted.rung, runtime.model.count)
            ],
        }

    async def _fixed(self, ref: SessionRef) -> list[dict[str, Any]]:
        """The part of the session's request that nothing shortens, and its budget, in tokens; for the doctor."""
        state = await self.sessions.load(ref, 0)
        if state.anchor is None or state.anchor.status == "deleted":
            return []
        runtime = await self.runtime_of(ref.workspace, _agent(state))
        tokens = fixed_tokens(state, runtime.agent, runtime.pack, runtime.model)
        return [
            {
                "tokens": tokens,
                "budget": self.bounds.budget_of(runtime),
                "labelled": len(state.critical),
            }
        ]

    # --- replay

    async def _replay(self, ref: SessionRef, turn: str, model: str | None) -> dict[str, Any]:
        records = await self.sessions.records(ref)
        run = _run_of(records, turn)
        steps = asked(records, run)[:STEPS_MAX]
        if not steps:
            raise NotFound(
                f"run {run} of {ref.session} called no model", hint="its timeline shows what it did"
            )
        made = [await self._made(ref, step, model) for step in steps]
        checked = [each["same"] for each in made if each["same"] is not None]
        return {"session": ref.session, "run_id": run, "same": bool(checked) and all(checked), "steps": made}

    async def _made(self, ref: SessionRef, step: Asked, model: str | None) -> dict[str, Any]:
        runtime = await self.runtime_of(ref.workspace, step.agent)
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
            step.state, runtime.agent, runtime.pack, runtime.tools, step.observation,
            heartbeat_s=self.bounds.heartbeat_of(runtime), rung=step.rung, said=named(step.state, step.head.joined),
        )  # fmt: skip
        answer["made_sha256"] = request_digest(request)
        answer["same"] = answer["made_sha256"] == answer["recorded_sha256"]
        if not answer["same"]:
            answer["why_not"] = "the pack's prompt or tools, or the code of this release, has changed since"
        if model is not None:
            answer["other"] = await self._other(runtime, request, model)
        return answer

    async def _other(self, runtime: AgentRuntime, request: ModelRequest, model: str) -> dict[str, Any]:
        other = self.other_model(runtime, model)
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
            "usage": reply.usage.recorded(other.model.count(request)) if other.model.is_llm else {},
        }


def _agent(state: SessionState) -> str:
    """The agent's newest version, which the next turn would run."""
    return state.anchor.agent.partition("@")[0] if state.anchor else ""


def _about_to_run(state: SessionState, clock: Clock) -> SessionState:
    """The state as the next turn would start with it: all pending inputs taken. A running turn stays unchanged."""
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


@dataclass(slots=True)
class _Used:
    """A model, and the agents that call it."""

    runtime: AgentRuntime
    agents: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ModelList:
    """Lists models, with the records of other planners."""

    directory: AgentDirectory
    runtime_of: Callable[[str, str], Awaitable[AgentRuntime]]
    corrections: ModelRecords
    bounds: Bounds

    async def of(self, workspace: str) -> list[dict[str, Any]]:
        """A row for each model that an agent of the workspace calls, and for each agent whose models cannot be called.

        Raises:
            Unavailable.
        """
        used: dict[tuple[str, str], _Used] = {}
        broken = []
        for agent in await self.directory.all(workspace):
            try:
                runtime = await self.runtime_of(workspace, agent.name)
            except AnchorWatchError as error:
                broken.append({"name": agent.model, "agents": [agent.name], "problem": str(error)})
                continue
            for each in (runtime, *runtime.others):
                found = used.setdefault((each.terms.name, each.model.name), _Used(each))
                found.agents.append(agent.name)
        return [*[await self._row(each) for _, each in sorted(used.items())], *broken]

    async def _row(self, used: _Used) -> dict[str, Any]:
        runtime, terms = used.runtime, used.runtime.terms
        known = Known(health=runtime.status.health)
        if isinstance(runtime.model, CorrectedModel):
            here = Known(runtime.model.correction, runtime.status.health)
            known = here.joined(await self.corrections.known(terms, runtime.model.name))
        prices = self.bounds.prices_of(runtime)
        return {
            "name": terms.name,
            "model": runtime.model.name,
            "endpoint": terms.place,
            "profile": terms.profile,
            "is_llm": runtime.model.is_llm,
            "counter": terms.counter,
            "correction": known.correction.to_json(),
            "context_tokens_max": terms.context_tokens_max or self.bounds.context_tokens_max,
            "prices": {"prompt": prices.prompt, "completion": prices.completion},
            **_health(known.health),
            "agents": used.agents,
            "problem": "",
        }


def _health(health: Health) -> dict[str, Any]:
    report = {"counted": health.counted, "reported": health.reported} if health.reported else None
    return {
        "last_report": report,
        "answered_at": _at(health.answered_at_ms),
        "failures": health.failures,
        "failed_at": _at(health.failed_at_ms),
        "fault": {"code": health.code, "why": health.why} if health.code else None,
        "asked_again_at": _at(health.asked_again_ms),
    }


def _at(at_ms: int) -> str | None:
    return iso(at_ms) if at_ms else None
