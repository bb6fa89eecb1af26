"""Asking the memory service, over the bus."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anchorwatch.bus.port import Bus
from anchorwatch.core.errors import AnchorWatchError, BadInput, NotFound, Unavailable
from anchorwatch.topology.subjects import RPC_MEMORY

ASK_TIMEOUT_S = 5.0
"""Longer than memory itself waits until it has read far enough."""
HINT = "is the memory service up? `anchorwatch status`"
_ERRORS: dict[str, type[AnchorWatchError]] = {
    error.code: error for error in (BadInput, NotFound, Unavailable)
}


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
        try:
            reply = await self._bus.request(subject, json.dumps(params).encode(), ASK_TIMEOUT_S)
        except Unavailable:
            raise Unavailable("the memory service does not answer", hint=HINT) from None
        answer = json.loads(reply)
        if "error" in answer:
            error = answer["error"]
            raise _ERRORS.get(error["code"], Unavailable)(error["message"], hint=error["hint"])
        return Answer(answer["result"], answer["as_of"])
