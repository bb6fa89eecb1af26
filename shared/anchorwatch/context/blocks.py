"""The blocks of a request, each with its tokens and omissions. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from anchorwatch.context.ladder import Rung, folded, has_excerpt, summary_shown
from anchorwatch.core.session.state import PastTurn, SessionState
from anchorwatch.models.port import Chat, ModelRequest

Count = Callable[[ModelRequest], int]


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a request: its ``tokens``, its ``text``, and what ``left_out`` omits."""

    name: str
    tokens: int
    text: str
    left_out: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "tokens": self.tokens, "left_out": self.left_out, "text": self.text}


def blocks(state: SessionState, request: ModelRequest, rung: Rung, count: Count) -> list[Block]:
    """The blocks of the request rendered from ``state`` on ``rung``, in order. Their tokens add up to the request's."""
    parts = list(_parts(state, request, rung))
    empty = replace(request, opening=(), past=(), now=(), tools=())
    grown = [empty, replace(empty, tools=request.tools)]
    for part in parts:
        # Cumulative counts, so that rounding is not counted twice.
        grown.append(replace(grown[-1], opening=(*grown[-1].opening, *part.messages)))
    counted = [0, *map(count, grown[1:])]
    sizes = [after - before for before, after in pairwise(counted)]
    tools = ", ".join(str(tool["function"]["name"]) for tool in request.tools)
    return [
        Block("tools", sizes[0], tools),
        *(
            Block(part.name, size, part.text, part.left_out)
            for part, size in zip(parts, sizes[1:], strict=True)
        ),
    ]


@dataclass(frozen=True, slots=True)
class _Part:
    name: str
    messages: Sequence[Chat]
    left_out: str = ""

    @property
    def text(self) -> str:
        return "\n".join(
            str(message.get("content") or message.get("tool_calls")) for message in self.messages
        )


def _parts(state: SessionState, request: ModelRequest, rung: Rung) -> Iterator[_Part]:
    yield _Part("system", request.opening[:1])
    if state.summary is not None:
        whole = summary_shown(state.summary, rung) == state.summary.text
        turns = f"{state.summary.turns} summarised turns"
        yield _Part("summary", request.opening[1:], turns if whole else f"{turns}; its beginning")
    shown = folded(state.history, rung)
    for each, messages in zip(shown, request.past, strict=True):
        yield _past(each, messages)
    turn = state.turn
    if turn is not None:
        yield _Part("wakes", request.now[:1])
        if request.now[1:-1]:
            cut = "the outputs of earlier steps" if rung >= Rung.EARLIER_STEPS else ""
            yield _Part("steps", request.now[1:-1], cut)
    yield _Part("observation and task", request.now[-1:])


def _past(each: PastTurn | tuple[PastTurn, ...], messages: Sequence[Chat]) -> _Part:
    if isinstance(each, tuple):
        name = f"runs {each[0].run_id}–{each[-1].run_id}" if len(each) > 1 else f"run {each[0].run_id}"
        return _Part(name, messages, "all but this line: no actions")
    return _Part(f"run {each.run_id}", messages, "the middle of long texts" if has_excerpt(each) else "")
