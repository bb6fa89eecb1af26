"""Answers requests on ``aw.rpc.memory.<verb>``: JSON in, JSON out."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from typing import Any

import structlog
from anchorwatch.core.errors import AnchorWatchError, BadInput, NotFound
from anchorwatch.core.session.wakes import Windows
from anchorwatch.service.journal_guard import VERB

from anchorwatch_memory.follow import Follower
from anchorwatch_memory.projections import Projections, ProjectionsDamaged
from anchorwatch_memory.reads import lists, memories, turns

Verb = Callable[[sqlite3.Connection, Mapping[str, Any]], dict[str, Any]]


class QueryHandler:
    """Answers queries from the projections. A request may set a lower bound to the sequence that the answer covers."""

    def __init__(
        self,
        projections: Projections,
        follower: Follower,
        windows: Windows,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        self._projections = projections
        self._follower = follower
        self._log = log
        self._verbs: dict[str, Verb] = {
            "ping": lambda _db, _params: {},
            "stats": lambda db, _params: lists.stats(db),
            "sessions": lists.sessions,
            "session": lists.session,
            "turns": turns.turns,
            "turn": turns.turn,
            "items": lists.items,
            "timeline": lists.timeline,
            "input": turns.of_input,
            "wakes": lambda db, params: lists.wakes(db, params, windows),
            "effects": lists.effects,
            "deliveries": lists.deliveries,
            "artifacts": lists.artifacts,
            "artifact": lists.artifact,
            "memories": memories.memories,
        }

    async def handle(self, subject: str, payload: bytes) -> bytes:
        """Answer one request. It never raises: the answer carries the error."""
        verb = subject.rpartition(".")[2]
        try:
            answer = await self._answer(verb, payload)
        except ProjectionsDamaged as damage:
            self._follower.note_damage(damage)
            hint = "memory rebuilds them; try again"
            answer = {"error": {"code": "unavailable", "message": damage.message, "hint": hint}}
        except AnchorWatchError as error:
            answer = {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
        except Exception:  # noqa: BLE001 - the answer says so, and the log has the rest
            self._log.exception("rpc.failed", verb=verb)
            answer = {"error": {"code": "unavailable", "message": "memory failed to answer", "hint": ""}}
        return json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")

    async def _answer(self, verb: str, payload: bytes) -> dict[str, Any]:
        if verb == VERB:
            await self._follower.checked()
            return {"result": {}, "as_of": self._follower.sequence}
        query = self._verbs.get(verb)
        if query is None:
            raise NotFound(f"unknown query {verb!r}", hint=f"known queries: {', '.join(self._verbs)}")
        params = _params(payload)
        at_least = params.get("at_least") or 0
        if not isinstance(at_least, int):
            raise BadInput("at_least must be a number")
        await self._follower.reach(at_least)
        result, as_of = await self._projections.read(lambda db: query(db, params))
        return {"result": result, "as_of": as_of}


def _params(payload: bytes) -> dict[str, Any]:
    try:
        params = json.loads(payload or b"{}")
    except ValueError:
        params = None
    if not isinstance(params, dict):
        raise BadInput("the parameters must be a JSON object")
    return params
