"""The models that a workspace's agents ask: on what terms, by what count, and how each has answered lately."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.core.times import iso
from anchorwatch.models.corrected import CorrectedModel
from anchorwatch.models.health import Health
from anchorwatch.service.agents import AgentDirectory

from anchorwatch_planner.corrections import Corrections, Known
from anchorwatch_planner.mind import Bounds, Mind


@dataclass(slots=True)
class _Used:
    """A model, and the agents that ask it."""

    mind: Mind
    agents: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ModelList:
    """Lists models. What other planners know of them is read from where it is kept."""

    directory: AgentDirectory
    mind_of: Callable[[str, str], Awaitable[Mind]]
    corrections: Corrections
    bounds: Bounds

    async def of(self, workspace: str) -> list[dict[str, Any]]:
        """A row for each model that an agent of the workspace asks, and for each agent whose models cannot be asked at all.

        Raises:
            Unavailable.
        """
        used: dict[tuple[str, str], _Used] = {}
        broken = []
        for agent in await self.directory.all(workspace):
            try:
                mind = await self.mind_of(workspace, agent.name)
            except AnchorWatchError as error:
                broken.append({"name": agent.model, "agents": [agent.name], "problem": str(error)})
                continue
            for each in (mind, *mind.others):
                found = used.setdefault((each.terms.name, each.model.name), _Used(each))
                found.agents.append(agent.name)
        return [*[await self._row(each) for _, each in sorted(used.items())], *broken]

    async def _row(self, used: _Used) -> dict[str, Any]:
        mind, terms = used.mind, used.mind.terms
        known = Known(health=mind.standing.health)
        if isinstance(mind.model, CorrectedModel):
            here = Known(mind.model.correction, mind.standing.health)
            known = here.joined(await self.corrections.known(terms, mind.model.name))
        prices = self.bounds.prices_of(mind)
        return {
            "name": terms.name,
            "model": mind.model.name,
            "endpoint": terms.place,
            "profile": terms.profile,
            "is_llm": mind.model.is_llm,
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
