"""What was learned of each model's count, kept in the bucket ``models`` for every planner, and for the next start."""

from __future__ import annotations

import asyncio
import json
from hashlib import sha256

import structlog
from anchorwatch.bus.port import Bus, KeyExists, KeyValue
from anchorwatch.core.errors import AnchorWatchError, Damaged
from anchorwatch.models.corrected import CorrectedModel
from anchorwatch.models.correction import Correction, read_correction
from anchorwatch.models.port import Model
from anchorwatch.topology.streams import MODELS_BUCKET

TRIES_MAX = 8
_KEY_CHARS = 26


class Corrections:
    """Reads and keeps corrections. ``place``: the endpoint that the models are behind, since another one may count otherwise."""

    def __init__(self, bucket: KeyValue, place: str, log: structlog.stdlib.BoundLogger) -> None:
        self._bucket = bucket
        self._place = place
        self._log = log
        self._keeping: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, bus: Bus, place: str, log: structlog.stdlib.BoundLogger) -> Corrections:
        """Raises Unavailable: the bus is away."""
        return cls(await bus.bucket(MODELS_BUCKET), place, log)

    async def following(self, model: Model) -> Model:
        """The model, with what is known of its count, and learning on. Rules send nothing, and learn nothing."""
        if not model.is_llm:
            return model
        known, _ = await self._read(model.name)
        return CorrectedModel(model, known, self._learned)

    async def close(self) -> None:
        """Wait for what is being kept."""
        await asyncio.gather(*self._keeping, return_exceptions=True)

    def _learned(self, model: str, correction: Correction) -> None:
        self._log.info("a model's count is corrected", model=model, **correction.to_json())
        task = asyncio.create_task(self._keep(model, correction), name="keep correction")
        self._keeping.add(task)
        task.add_done_callback(self._keeping.discard)

    async def _keep(self, model: str, correction: Correction) -> None:
        try:
            for _ in range(TRIES_MAX):
                standing, revision = await self._read(model)
                value = {"model": model, "endpoint": self._place, **standing.joined(correction).to_json()}
                payload = json.dumps(value).encode()
                try:
                    if revision:
                        await self._bucket.update(self._key(model), payload, revision)
                    else:
                        await self._bucket.create(self._key(model), payload)
                except KeyExists:
                    continue
                return
        except AnchorWatchError as error:
            # This process knows it; another learns it by its own first report.
            self._log.warning("a correction was not kept", model=model, code=error.code, why=str(error))

    async def _read(self, model: str) -> tuple[Correction, int]:
        entry = await self._bucket.get(self._key(model))
        if entry is None:
            return Correction(), 0
        try:
            value = json.loads(entry.value)
            found = read_correction({name: value[name] for name in ("ratio", "excess", "reports")})
        except (ValueError, KeyError, TypeError, Damaged):
            self._log.warning("a model's correction cannot be read, and is learned anew", model=model)
            return Correction(), entry.revision
        return found, entry.revision

    def _key(self, model: str) -> str:
        return sha256(f"{self._place}\x1f{model}".encode()).hexdigest()[:_KEY_CHARS]
