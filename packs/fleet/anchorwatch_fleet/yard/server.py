"""The yard on the bus: requests on ``aw.yard.<verb>``, workers' reports on ``aw.yard.report.<id>``. JSON both ways.

An answer is {"ok": true, …} or {"ok": false, "code", "message"}. An error answer means that nothing was done.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal, assert_never, get_args

import structlog
from anchorwatch.packs import AnchorWatchError, BadInput, Bus, Subscription
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from anchorwatch_fleet.instances import Priority, decode_report
from anchorwatch_fleet.subjects import PROVIDER_ERROR, REPORT, YARD
from anchorwatch_fleet.yard.faults import ANY_VERB, Faults
from anchorwatch_fleet.yard.roster import Roster
from anchorwatch_fleet.yard.yard import Yard

COUNT_MAX = 64
LOG_LINES_MAX = 500

EffectKey = Annotated[str, Field(min_length=1, max_length=200)]
InstanceId = Annotated[str, Field(min_length=1, max_length=64)]


Verb = Literal["launch", "stop", "restart", "list", "logs", "effect", "misbehave", "kill", "count", "ping"]
VERBS: tuple[Verb, ...] = get_args(Verb)
TEST_VERBS: frozenset[Verb] = frozenset(("misbehave", "kill", "count"))
"""Verbs without injected faults, which tests use for control."""


class _Args(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Launch(_Args):
    """``limit``: refuse above this number of live instances; None: no limit."""

    effect_key: EffectKey
    count: int = Field(ge=1, le=COUNT_MAX)
    priority: Priority
    limit: int | None = None


class OnInstance(_Args):
    """``stop`` and ``restart``."""

    effect_key: EffectKey
    id: InstanceId


class OfEffect(_Args):
    """``effect``: the state of an effect key."""

    effect_key: EffectKey


class Logs(_Args):
    """``lines``: the number of last lines."""

    id: InstanceId
    lines: int = Field(50, ge=1, le=LOG_LINES_MAX)


class Kill(_Args):
    """``how``: kill with signal 9, or let it hang."""

    id: InstanceId
    how: Literal["kill", "hang"] = "kill"


class Misbehave(_Args):
    """See `anchorwatch_fleet.yard.faults`."""

    mode: str
    verb: str = ANY_VERB
    times: int = 1
    slow_s: float = Field(3.0, strict=False)


class YardServer:
    """Answers for a `Yard`. Each verb has its own subscription, so a slow stop delays no list."""

    def __init__(
        self,
        yard: Yard,
        roster: Roster,
        faults: Faults,
        *,
        bus: Bus,
        now_ms: Callable[[], int],
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        self._yard = yard
        self._roster = roster
        self._faults = faults
        self._bus = bus
        self._now_ms = now_ms
        self._log = log
        self._subscriptions: list[Subscription] = []

    async def open(self) -> None:
        """Listen."""
        for verb in VERBS:
            handler = partial(self._answer, verb)
            self._subscriptions.append(await self._bus.subscribe(YARD.at(verb=verb), handler))
        self._subscriptions.append(await self._bus.subscribe(REPORT.filter(), self._hear))

    async def close(self) -> None:
        """Stop listening."""
        for each in self._subscriptions:
            await each.close()
        self._subscriptions.clear()

    async def _hear(self, _subject: str, payload: bytes) -> None:
        with contextlib.suppress(BadInput):
            self._roster.hear(decode_report(payload))

    async def _answer(self, verb: Verb, _subject: str, payload: bytes) -> bytes | None:
        fault = None if verb in TEST_VERBS else self._faults.take(verb)
        if fault is not None:
            self._log.info("yard.fault_injected", verb=verb, mode=fault.mode)
            if fault.mode == "silent":
                return None
            if fault.mode == "error":
                return _encode(
                    {"ok": False, "code": PROVIDER_ERROR, "message": "injected fault of the provider"}
                )
            if fault.mode == "slow":
                await asyncio.sleep(fault.slow_s)
        answer = await self._try(verb, payload)
        return None if fault is not None and fault.mode == "timeout_after" else _encode(answer)

    async def _try(self, verb: Verb, payload: bytes) -> dict[str, Any]:
        try:
            return {"ok": True, **await self._do(verb, json.loads(payload or b"{}"))}
        except AnchorWatchError as error:
            return {"ok": False, "code": error.code, "message": str(error)}
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()
            )
            return {"ok": False, "code": "bad_input", "message": problems}
        except ValueError as error:
            return {"ok": False, "code": "bad_input", "message": f"not JSON: {error}"}

    async def _do(self, verb: Verb, raw: object) -> dict[str, Any]:
        match verb:
            case "launch" | "stop" | "restart":
                return await self._act(verb, raw)
            case "list":
                return {
                    "at_ms": self._now_ms(),
                    "instances": [each.to_json() for each in self._roster.listed()],
                }
            case "logs":
                logs = Logs.model_validate(raw)
                return {"id": logs.id, "lines": self._yard.logs(logs.id, logs.lines)}
            case "effect":
                return self._yard.what_became_of(OfEffect.model_validate(raw).effect_key)
            case "kill":
                kill = Kill.model_validate(raw)
                return await self._yard.kill(kill.id, kill.how)
            case "misbehave":
                wish = Misbehave.model_validate(raw)
                self._faults.set(wish.mode, wish.verb, wish.times, wish.slow_s)
                return {}
            case "count":
                return {"launches": self._yard.launches()}
            case "ping":
                return {"at_ms": self._now_ms()}
        assert_never(verb)

    async def _act(self, verb: Literal["launch", "stop", "restart"], raw: object) -> dict[str, Any]:
        if verb == "launch":
            launch = Launch.model_validate(raw)
            answer = await self._yard.launch(launch.effect_key, launch.count, launch.priority, launch.limit)
        else:
            args = OnInstance.model_validate(raw)
            act = self._yard.stop if verb == "stop" else self._yard.restart
            answer = await act(args.effect_key, args.id)
        self._log.info(verb, **answer)
        return answer


def _encode(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer).encode()
