"""Whether this gateway is of use now."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.topology.streams import STREAMS

from anchorwatch_gateway.parts import Parts


async def readiness(parts: Parts) -> dict[str, str]:
    """What was looked at, each ``ok`` or what is wrong."""
    if not parts.bus.connected:
        return {"bus": "not connected"}
    checks: dict[str, Awaitable[object]] = {
        spec.name: parts.bus.stream_state(spec.name) for spec in STREAMS
    } | {"memory": parts.memory.ask("ping", {})}
    results = await asyncio.gather(*checks.values(), return_exceptions=True)
    return {"bus": "ok"} | {name: _say(result) for name, result in zip(checks, results, strict=True)}


def _say(result: object) -> str:
    if isinstance(result, AnchorWatchError):
        return result.message
    if isinstance(result, BaseException):
        raise result
    return "ok"
