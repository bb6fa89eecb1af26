"""Requests to the observer, ``aw.rpc.observe.<workspace>.<agent>``, and the format of its answers.

An answer is a JSON object: ``text``, ``facts``, ``at_ms``, ``digest``, ``age_max_s`` and ``data``; or ``error``, a sentence.
`observe` always returns an observation: if the observer fails, every fact in it is unknown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from anchorwatch.bus.port import Bus
from anchorwatch.core.errors import AnchorWatchError, Unavailable
from anchorwatch.core.facts import UNKNOWN, Observation
from anchorwatch.topology.subjects import RPC_OBSERVE

OBSERVE_TIMEOUT_S = 5.0


async def observe(
    bus: Bus,
    workspace: str,
    agent: str,
    timeout_s: float = OBSERVE_TIMEOUT_S,
    *,
    now_ms: int,
    names: Iterable[str] = (),
) -> Observation:
    """The current observation of the agent named ``agent``. ``names`` are the facts that are unknown if the observer fails.

    It never raises for an observer that is unavailable, slow or faulty.
    """
    try:
        return await ask(bus, workspace, agent, timeout_s)
    except AnchorWatchError as error:
        return unavailable(error.message, names, now_ms)


async def ask(bus: Bus, workspace: str, agent: str, timeout_s: float = OBSERVE_TIMEOUT_S) -> Observation:
    """The current observation of the agent named ``agent``.

    Raises:
        Unavailable: the observer is unavailable, slow or reports an error, or its answer is invalid.
    """
    data = await bus.request(RPC_OBSERVE.at(workspace=workspace, agent=agent), b"", timeout_s)
    return read_answer(data)


def unavailable(reason: str, names: Iterable[str], now_ms: int) -> Observation:
    """An observation in which every fact is unknown. It has no digest, so no command can cite it."""
    return Observation(
        text=f"observation unavailable: {reason}",
        facts=dict.fromkeys(names, UNKNOWN),
        at_ms=now_ms,
        digest="",
        age_max_s=0.0,
    )


def encode_answer(observation: Observation) -> bytes:
    """The observer's answer with an observation."""
    content = {
        "text": observation.text,
        "facts": dict(observation.facts),
        "at_ms": observation.at_ms,
        "digest": observation.digest,
        "age_max_s": observation.age_max_s,
        "data": dict(observation.data),
    }
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


def encode_error(reason: str) -> bytes:
    """The observer's answer with an error."""
    return json.dumps({"error": reason}).encode()


def read_answer(data: bytes) -> Observation:
    """Read the observer's answer.

    Raises:
        Unavailable: the answer is an error, or is invalid.
    """
    try:
        content = json.loads(data)
        if "error" in content:
            raise Unavailable(str(content["error"])[:500])
        return Observation(
            text=content["text"],
            facts=content["facts"],
            at_ms=content["at_ms"],
            digest=content["digest"],
            age_max_s=content["age_max_s"],
            data=content["data"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise Unavailable(f"invalid answer of the observer: {error!r}"[:300]) from None
