"""The query of a request: a parameter that nobody reads is a misspelt one, and would be answered with more than was asked for."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from anchorwatch_gateway.errors import BadRequest
from anchorwatch_gateway.guard import OPEN_PATHS


async def refuse_unknown(request: Request) -> None:
    """Let a request pass whose query holds nothing but what its route knows. What only says how the gateway is asks for nothing.

    Raises:
        BadRequest: it holds something else; the hint names what there is.
    """
    given = request.query_params.keys()
    if not given or request.url.path in OPEN_PATHS:
        return
    known = _known(request)
    unknown = sorted(set(given) - set(known))
    if unknown:
        hint = f"there are: {', '.join(known)}" if known else "this path takes no parameters"
        raise BadRequest(f"there is no parameter {unknown[0][:80]!r} here", hint=hint)


def _known(request: Request) -> list[str]:
    """The names in the API's own description, which the routes are checked by."""
    described: dict[str, Any] = request.app.openapi()["paths"][request.scope["route"].path]
    parameters = described[request.method.lower()].get("parameters", ())
    return sorted(each["name"] for each in parameters if each["in"] == "query")
