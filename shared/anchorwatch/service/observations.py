"""Asking the observer how the world is: ``aw.rpc.observe.<workspace>.<agent>``, and the form of its answer.

The answer is JSON: ``text``, ``facts``, ``at_ms``, ``digest``, ``age_max_s``, ``data``; or ``error``, a sentence, where it could
not look. Nobody who asks is left without an answer: what cannot be seen is an observation in which everything is unknown.
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
    """What an agent's pack sees now. ``agent`` is its name; ``names``: facts that are unknown when nobody answers.

    Never raises for an observer that is away, slow or odd.
    """
    try:
        return await ask(bus, workspace, agent, timeout_s)
    except AnchorWatchError as error:
        return unavailable(error.message, names, now_ms)


async def ask(bus: Bus, workspace: str, agent: str, timeout_s: float = OBSERVE_TIMEOUT_S) -> Observation:
    """What an agent's pack sees now.

    Raises:
        Unavailable: the observer is away, does not answer in time, could not look, or answers what cannot be read.
    """
    answer = await bus.request(RPC_OBSERVE.at(workspace=workspace, agent=agent), b"", timeout_s)
    return read_answer(answer)


def unavailable(reason: str, names: Iterable[str], now_ms: int) -> Observation:
    """Nothing was seen. It has no digest, so no command can cite it."""
    return Observation(
        text=f"observation unavailable: {reason}",
        facts=dict.fromkeys(names, UNKNOWN),
        at_ms=now_ms,
        digest="",
        age_max_s=0.0,
    )


def answer(observation: Observation) -> bytes:
    """An observation as the observer's answer."""
    content = {
        "text": observation.text,
        "facts": dict(observation.facts),
        "at_ms": observation.at_ms,
        "digest": observation.digest,
        "age_max_s": observation.age_max_s,
        "data": dict(observation.data),
    }
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


def answer_error(reason: str) -> bytes:
    """The answer of an observer that could not look."""
    return json.dumps({"error": reason}).encode()


def read_answer(data: bytes) -> Observation:
    """Read the observer's answer.

    Raises:
        Unavailable: it could not look, or the answer is none.
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
        raise Unavailable(f"the observer's answer cannot be read: {error!r}"[:300]) from None
