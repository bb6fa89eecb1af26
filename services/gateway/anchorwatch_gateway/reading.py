"""Reading projections, in pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from anchorwatch.core.errors import Unavailable
from fastapi import Response

from anchorwatch_gateway.memory import Answer
from anchorwatch_gateway.parts import Parts
from anchorwatch_gateway.replies import Page

AS_OF_HEADER = "Anchorwatch-As-Of"
"""The journal sequence up to which an answer is complete."""


@dataclass(frozen=True, slots=True)
class Window:
    """Which part of a list, and how new it must be."""

    limit: int
    cursor: str | None
    order: Literal["asc", "desc"]
    at_least: int | None


async def page(
    parts: Parts, response: Response, verb: str, window: Window, filters: Mapping[str, Any]
) -> Page:
    """One page of the list ``verb``; filters that are None filter nothing."""
    params = {name: value for name, value in filters.items() if value is not None}
    params |= {"limit": window.limit, "order": window.order}
    if window.cursor is not None:
        params["cursor"] = window.cursor
    answer = await ask(parts, response, verb, params, window.at_least)
    return Page(data=answer.result["data"], next=answer.result["next"])


async def ask(
    parts: Parts, response: Response, verb: str, params: Mapping[str, Any], at_least: int | None = None
) -> Answer:
    """What memory answers, read at least as far as this gateway has told anyone.

    Raises:
        Unavailable: memory is away, or has not read up to the ``at_least`` that the client insists on.
    """
    wanted = max(at_least or 0, parts.seen.sequence)
    answer = await parts.memory.ask(verb, {**params, "at_least": wanted})
    if at_least is not None and answer.as_of < at_least:
        raise Unavailable(
            f"the projections have been read up to {answer.as_of} only", hint="try again, or ask for less"
        )
    response.headers[AS_OF_HEADER] = str(answer.as_of)
    return answer
