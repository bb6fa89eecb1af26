"""Asking other services over the bus: JSON there, JSON back, errors by their code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from anchorwatch.bus.port import Bus
from anchorwatch.core.errors import AnchorWatchError, BadInput, NotFound, Unavailable

_ERRORS: dict[str, type[AnchorWatchError]] = {
    error.code: error for error in (BadInput, NotFound, Unavailable)
}


async def ask(
    bus: Bus, subject: str, params: Mapping[str, Any], *, service: str, timeout_s: float
) -> dict[str, Any]:
    """The answer of ``service``, a JSON object.

    Raises:
        NotFound, BadInput: the service says so. Unavailable: it does not answer, or failed to.
    """
    try:
        reply = await bus.request(subject, json.dumps(params).encode(), timeout_s)
    except Unavailable:
        raise Unavailable(
            f"the {service} service does not answer",
            hint=f"is the {service} service up? `anchorwatch status`",
        ) from None
    answer: dict[str, Any] = json.loads(reply)
    if "error" in answer:
        error = answer["error"]
        raise _ERRORS.get(error["code"], Unavailable)(error["message"], hint=error["hint"])
    return answer
