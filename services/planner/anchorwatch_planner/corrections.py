"""What was learned of each model, kept in the bucket ``models`` for every planner, for the next start, and for people.

That is by how much its counts fall short, and how it has answered lately. Another endpoint may count otherwise, so what is
learned is of a model and the place that it is at.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any

import structlog
from anchorwatch.bus.port import Bus, KeyExists, KeyValue
from anchorwatch.core.errors import AnchorWatchError, Damaged
from anchorwatch.models.corrected import UNPROVED_RATIO, CorrectedModel
from anchorwatch.models.correction import Correction, read_correction
from anchorwatch.models.health import Health, read_health
from anchorwatch.models.port import Measures, Model
from anchorwatch.models.tokens import ESTIMATE_RATIO
from anchorwatch.topology.streams import MODELS_BUCKET

from anchorwatch_planner.mind import Mind, Terms

TRIES_MAX = 8
TOLD_MS = 60_000
"""How old what people are shown of a model that answers may be: each call would be a write."""
_KEY_CHARS = 26


@dataclass(frozen=True, slots=True)
class Known:
    """What is stored of a model at a place."""

    correction: Correction = field(default_factory=Correction)
    health: Health = field(default_factory=Health)

    def joined(self, other: Known) -> Known:
        """What two processes know, together: the larger correction, and the later news."""
        newest = max(self.health, other.health, key=lambda each: each.changed_at_ms)
        return Known(self.correction.joined(other.correction), newest)

    def to_json(self) -> dict[str, Any]:
        return {**self.correction.to_json(), "health": self.health.to_json()}


class Corrections:
    """Reads and keeps what is known of models."""

    def __init__(self, bucket: KeyValue, log: structlog.stdlib.BoundLogger) -> None:
        self._bucket = bucket
        self._log = log
        self._keeping: set[asyncio.Task[None]] = set()
        self._told: dict[tuple[str, str], Health] = {}

    @classmethod
    async def open(cls, bus: Bus, log: structlog.stdlib.BoundLogger) -> Corrections:
        """Raises Unavailable: the bus is away."""
        return cls(await bus.bucket(MODELS_BUCKET), log)

    async def following(self, model: Model, terms: Terms) -> Model:
        """The model, with what is known of its count, and learning on. Rules send nothing, and learn nothing."""
        if not model.is_llm:
            return model
        known = await self.known(terms, model.name)
        learned = partial(self._learned, terms.kept_at)
        # With a counter of its own, no ratio stands in its estimate.
        reserve = UNPROVED_RATIO * (ESTIMATE_RATIO if isinstance(model, Measures) else 1.0)
        return CorrectedModel(model, known.correction, learned, reserve=reserve)

    async def known(self, terms: Terms, model: str) -> Known:
        """What is stored of a model."""
        return (await self._read(terms.kept_at, model))[0]

    def note(self, mind: Mind) -> None:
        """Keep how a mind's model stands, where that is news."""
        key, health = (mind.terms.kept_at, mind.model.name), mind.standing.health
        told = self._told.get(key, Health())
        same = (told.failures, bool(told.answered_at_ms)) == (health.failures, bool(health.answered_at_ms))
        if same and health.changed_at_ms - told.changed_at_ms < TOLD_MS:
            return
        self._told[key] = health
        self._begin(*key, Known(health=health))

    async def close(self) -> None:
        """Wait for what is being kept."""
        await asyncio.gather(*self._keeping, return_exceptions=True)

    def _learned(self, place: str, model: str, correction: Correction) -> None:
        self._log.info("a model's count is corrected", model=model, **correction.to_json())
        self._begin(place, model, Known(correction))

    def _begin(self, place: str, model: str, known: Known) -> None:
        task = asyncio.create_task(self._keep(place, model, known), name="keep what is known of a model")
        self._keeping.add(task)
        task.add_done_callback(self._keeping.discard)

    async def _keep(self, place: str, model: str, known: Known) -> None:
        key = _key(place, model)
        try:
            for _ in range(TRIES_MAX):
                standing, revision = await self._read(place, model)
                value = {"model": model, "endpoint": place, **standing.joined(known).to_json()}
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
            # This process knows it; another learns it by its own first report.
            self._log.warning("a correction was not kept", model=model, code=error.code, why=str(error))

    async def _read(self, place: str, model: str) -> tuple[Known, int]:
        entry = await self._bucket.get(_key(place, model))
        if entry is None:
            return Known(), 0
        try:
            return _known(json.loads(entry.value)), entry.revision
        except (ValueError, KeyError, TypeError, Damaged):
            self._log.warning("a model's correction cannot be read, and is learned anew", model=model)
            return Known(), entry.revision


def _known(value: Mapping[str, Any]) -> Known:
    correction = read_correction({name: value[name] for name in ("ratio", "excess", "reports")})
    # Releases before kept no health.
    return Known(correction, read_health(value.get("health", {})))


def _key(place: str, model: str) -> str:
    return sha256(f"{place}\x1f{model}".encode()).hexdigest()[:_KEY_CHARS]
