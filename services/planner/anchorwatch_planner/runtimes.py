"""What each agent runs with: its definition, pack, tools and models; and what is known of those models.

A runtime is made once for each version of an agent. How much a model's counts fall short, and how it has answered lately, is
kept in the bucket ``models``, for every planner, for the next start and for people. Two endpoints may count differently, so that
knowledge belongs to a model at its endpoint.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import Any

import structlog
from anchorwatch.bus.port import Bus, KeyExists, KeyValue
from anchorwatch.core.agents import RULES, AgentSpec
from anchorwatch.core.errors import AnchorWatchError, Damaged
from anchorwatch.core.session.spending import Budget, Prices
from anchorwatch.core.tools import ToolSpec
from anchorwatch.models import catalog
from anchorwatch.models.corrected import UNPROVED_RATIO, CorrectedModel
from anchorwatch.models.correction import Correction, read_correction
from anchorwatch.models.health import Health, read_health
from anchorwatch.models.port import Measures, Model
from anchorwatch.models.profile import find as find_profile
from anchorwatch.models.tokens import ESTIMATE_RATIO, counter_for
from anchorwatch.packs import registry as packs
from anchorwatch.packs.port import Pack
from anchorwatch.settings import Settings
from anchorwatch.topology.streams import MODELS_BUCKET


@dataclass(frozen=True, slots=True)
class ModelTerms:
    """How a model is called; None: by the settings. ``name``: its name in agent definitions; ``place``: its endpoint.

    ``is_measured``: the endpoint counts tokens itself.
    """

    name: str = ""
    place: str = ""
    profile: str = ""
    counter: str = ""
    is_measured: bool = False
    context_tokens_max: int | None = None
    timeout_s: float | None = None
    prices: Prices | None = None

    @property
    def kept_at(self) -> str:
        """The place in the key of the model's record: an endpoint that counts itself needs another correction of the estimate."""
        return f"{self.place} (measured)" if self.is_measured else self.place


@dataclass(slots=True)
class ModelStatus:
    """How a model has answered this process; shared by all agents that call it."""

    health: Health = field(default_factory=Health)


@dataclass(frozen=True, slots=True)
class AgentRuntime:
    """An agent's definition, pack, granted tools and model; ``others``: with the models to call if this one does not answer."""

    agent: AgentSpec
    pack: Pack
    tools: tuple[ToolSpec, ...]
    model: Model
    terms: ModelTerms = ModelTerms()
    status: ModelStatus = field(default_factory=ModelStatus)
    others: tuple[AgentRuntime, ...] = ()

    def in_turn(self, now_ms: int) -> tuple[AgentRuntime, ...]:
        """This runtime and the others, in the order of calls: models that failed lately come last."""
        runtimes = (self, *self.others)
        # The sort is stable.
        return tuple(sorted(runtimes, key=lambda each: not each.status.health.is_worth_asking(now_ms)))

    def skipped(self, now_ms: int) -> tuple[AgentRuntime, ...]:
        """Those that failed lately."""
        return tuple(each for each in (self, *self.others) if not each.status.health.is_worth_asking(now_ms))


@dataclass(frozen=True, slots=True)
class Bounds:
    """Settings that bound a step, in seconds and tokens. An agent's limits and a model's terms override them."""

    heartbeat_s: float
    model_timeout_s: float
    context_tokens_max: int
    prices: Prices = field(default_factory=Prices)

    def heartbeat_of(self, runtime: AgentRuntime) -> float:
        return runtime.agent.heartbeat_s or self.heartbeat_s

    def budget_of(self, runtime: AgentRuntime) -> int:
        wanted = runtime.agent.limits.context_tokens_max or self.context_tokens_max
        largest = runtime.model.largest if isinstance(runtime.model, CorrectedModel) else None
        return min(wanted, runtime.terms.context_tokens_max or wanted, largest or wanted)

    def timeout_of(self, runtime: AgentRuntime) -> float:
        return runtime.terms.timeout_s or self.model_timeout_s

    def prices_of(self, runtime: AgentRuntime) -> Prices:
        return self.prices if runtime.terms.prices is None else runtime.terms.prices

    def spending_of(self, runtime: AgentRuntime) -> Budget:
        limits = runtime.agent.limits
        return Budget(limits.turn_tokens_max, limits.day_tokens_max, limits.day_cost_max)


Find = Callable[[str, str], Awaitable[AgentSpec]]
Build = Callable[[Settings, AgentSpec, Pack], Model]
"""Makes the model of (settings, agent, pack)."""

Following = Callable[[Model, ModelTerms], Awaitable[Model]]
"""Makes a model correct its counts by what its endpoint reports."""


class AgentRuntimes:
    """Finds the runtime of ``name`` or ``name@version`` in a workspace."""

    def __init__(self, find: Find, settings: Settings, build: Build, following: Following) -> None:
        self._find = find
        self._settings = settings
        self._build = build
        self._following = following
        self._runtimes: dict[tuple[str, str], AgentRuntime] = {}
        self._statuses: dict[tuple[str, str], ModelStatus] = {}

    async def of(self, workspace: str, name: str) -> AgentRuntime:
        """The runtime of an agent.

        Raises:
            NotFound: no such agent, or its pack is not installed. BadSettings: a model of it is not configured.
        """
        agent = await self._find(workspace, name)
        key = (workspace, agent.at_version)
        if key not in self._runtimes:
            pack = packs.load(agent.pack)
            first, *others = [
                await self._one(agent, pack, model) for model in catalog.in_turn(self._settings, agent)
            ]
            self._runtimes.setdefault(key, replace(first, others=tuple(others)))
        return self._runtimes[key]

    async def close(self) -> None:
        for runtime in self._runtimes.values():
            for each in (runtime, *runtime.others):
                await each.model.close()

    async def _one(self, agent: AgentSpec, pack: Pack, name: str) -> AgentRuntime:
        granted = tuple(tool for tool in pack.tools(agent) if tool.name in agent.grants)
        terms = terms_of(self._settings, name)
        built = self._build(self._settings, agent.model_copy(update={"model": name}), pack)
        model = await self._following(built, terms)
        status = self._statuses.setdefault((terms.place, model.name), ModelStatus())
        return AgentRuntime(agent, pack, granted, model, terms, status)


def terms_of(settings: Settings, name: str) -> ModelTerms:
    """The terms of the model ``name``.

    Raises:
        BadSettings: no such model is configured.
    """
    if name == RULES:
        return ModelTerms(name)
    own = catalog.effective(settings, name)
    profile = find_profile(own.model_profile)
    estimate = counter_for(own.model_name).described
    return ModelTerms(
        name,
        place=own.model_url,
        profile=profile.name,
        is_measured=profile.counter != "estimate",
        counter=estimate if profile.counter == "estimate" else f"its own {profile.counter}, else {estimate}",
        context_tokens_max=catalog.bound(settings, name),
        timeout_s=own.model_timeout_s,
        prices=Prices(own.price_prompt, own.price_completion),
    )


TRIES_MAX = 8
NOTE_MS = 60_000
"""A model that keeps answering is recorded this often, rather than after each call."""
_KEY_CHARS = 26


@dataclass(frozen=True, slots=True)
class Known:
    """The record of a model at an endpoint."""

    correction: Correction = field(default_factory=Correction)
    health: Health = field(default_factory=Health)

    def joined(self, other: Known) -> Known:
        """The records of two processes together: the larger correction, and the later health."""
        newest = max(self.health, other.health, key=lambda each: each.changed_at_ms)
        return Known(self.correction.joined(other.correction), newest)

    def to_json(self) -> dict[str, Any]:
        return {**self.correction.to_json(), "health": self.health.to_json()}


class ModelRecords:
    """Reads and writes the records of models."""

    def __init__(self, bucket: KeyValue, log: structlog.stdlib.BoundLogger) -> None:
        self._bucket = bucket
        self._log = log
        self._keeping: set[asyncio.Task[None]] = set()
        self._noted: dict[tuple[str, str], Health] = {}

    @classmethod
    async def open(cls, bus: Bus, log: structlog.stdlib.BoundLogger) -> ModelRecords:
        """Raises Unavailable: the bus is not available."""
        return cls(await bus.bucket(MODELS_BUCKET), log)

    async def following(self, model: Model, terms: ModelTerms) -> Model:
        """The model with the recorded correction of its count, which it keeps learning. Rules send and learn nothing."""
        if not model.is_llm:
            return model
        known = await self.known(terms, model.name)
        learned = partial(self._learned, terms.kept_at)
        # For an endpoint that counts itself, the estimate includes no ratio.
        reserve = UNPROVED_RATIO * (ESTIMATE_RATIO if isinstance(model, Measures) else 1.0)
        return CorrectedModel(model, known.correction, learned, reserve=reserve)

    async def known(self, terms: ModelTerms, model: str) -> Known:
        """The record of a model."""
        return (await self._read(terms.kept_at, model))[0]

    def note(self, runtime: AgentRuntime) -> None:
        """Record the health of a runtime's model if it has changed."""
        key, health = (runtime.terms.kept_at, runtime.model.name), runtime.status.health
        noted = self._noted.get(key, Health())
        same = (noted.failures, bool(noted.answered_at_ms)) == (health.failures, bool(health.answered_at_ms))
        if same and health.changed_at_ms - noted.changed_at_ms < NOTE_MS:
            return
        self._noted[key] = health
        self._begin(*key, Known(health=health))

    async def close(self) -> None:
        """Wait for the writes in flight."""
        await asyncio.gather(*self._keeping, return_exceptions=True)

    def _learned(self, place: str, model: str, correction: Correction) -> None:
        self._log.info("model.count_corrected", model=model, **correction.to_json())
        self._begin(place, model, Known(correction))

    def _begin(self, place: str, model: str, known: Known) -> None:
        task = asyncio.create_task(self._keep(place, model, known), name="record of a model")
        self._keeping.add(task)
        task.add_done_callback(self._keeping.discard)

    async def _keep(self, place: str, model: str, known: Known) -> None:
        key = _key(place, model)
        try:
            for _ in range(TRIES_MAX):
                current, revision = await self._read(place, model)
                value = {"model": model, "endpoint": place, **current.joined(known).to_json()}
                payload = json.dumps(value).encode()
                try:
                    if revision:
                        await self._bucket.update(key, payload, revision)
                    else:
                        await self._bucket.create(key, payload)
                except KeyExists:
                    continue
                return
        except AnchorWatchError as error:
            # This process knows it; another process learns it from its own first report.
            self._log.warning("model.record_failed", model=model, code=error.code, reason=str(error))

    async def _read(self, place: str, model: str) -> tuple[Known, int]:
        entry = await self._bucket.get(_key(place, model))
        if entry is None:
            return Known(), 0
        try:
            return _known(json.loads(entry.value)), entry.revision
        except (ValueError, KeyError, TypeError, Damaged):
            self._log.warning("model.record_unreadable", model=model)
            return Known(), entry.revision


def _known(value: Mapping[str, Any]) -> Known:
    correction = read_correction({name: value[name] for name in ("ratio", "excess", "reports")})
    # Earlier releases recorded no health.
    return Known(correction, read_health(value.get("health", {})))


def _key(place: str, model: str) -> str:
    return sha256(f"{place}\x1f{model}".encode()).hexdigest()[:_KEY_CHARS]
