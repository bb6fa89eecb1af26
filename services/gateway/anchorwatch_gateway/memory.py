"""Asking the memory service, over the bus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anchorwatch.bus.port import Bus
from anchorwatch.topology.subjects import RPC_MEMORY

from anchorwatch_gateway.asking import ask

ASK_TIMEOUT_S = 5.0
"""Longer than memory itself waits until it has read far enough."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What memory said: ``result``, and the journal sequence up to which it is complete."""

    result: dict[str, Any]
    as_of: int


class MemoryClient:
    """The memory service as the gateway sees it."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def ask(self, verb: str, params: Mapping[str, Any]) -> Answer:
        """Ask ``verb``.

        Raises:
            NotFound, BadInput: memory says so. Unavailable: it does not answer.
        """
        subject = RPC_MEMORY.at(verb=verb)
        answer = await ask(self._bus, subject, params, service="memory", timeout_s=ASK_TIMEOUT_S)
        return Answer(answer["result"], answer["as_of"])
