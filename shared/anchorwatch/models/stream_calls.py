"""Assembles the tool calls of a streamed answer from their fragments. Pure.

Fragments do not always name their call. A new index begins a call; so does another id, and a name after a call with
complete arguments. A fragment with neither id nor name continues the call of its index, else the last one. A wrong
assembly is not valid JSON, and such a call does not run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_MARKS = re.compile(r'\\.?|["{}\[\]]', re.DOTALL)


@dataclass(slots=True)
class _Call:
    ident: object = None
    name: str = ""
    odd_name: object = None
    arguments: list[str] = field(default_factory=list)
    odd_arguments: object = None
    depth: int = 0
    quoted: bool = False
    escaped: bool = False
    complete: bool = False

    def go_on(self, text: str) -> None:
        """Append to the arguments, and note whether their object is complete."""
        self.arguments.append(text)
        if self.escaped and text:
            text, self.escaped = text[1:], False
        for mark in _MARKS.findall(text):
            if self.quoted:
                self.quoted = mark != '"'
                self.escaped = mark == "\\"
            elif mark == '"':
                self.quoted = True
            elif mark in "{[":
                self.depth += 1
            elif mark in "}]":
                self.depth -= 1
                self.complete = self.complete or self.depth <= 0

    def whole(self) -> dict[str, Any]:
        said = "".join(self.arguments) if self.arguments else None
        arguments = said if self.odd_arguments is None else self.odd_arguments
        name = self.name if self.odd_name is None else self.odd_name
        return {"id": self.ident, "type": "function", "function": {"name": name, "arguments": arguments}}


class Calls:
    """The calls of one answer."""

    def __init__(self) -> None:
        self._calls: list[_Call | object] = []
        self._by_index: dict[int, _Call] = {}
        self._last: _Call | None = None

    @property
    def called(self) -> bool:
        return bool(self._calls)

    def add(self, fragment: object) -> None:
        """Feed a fragment. An invalid one becomes an unreadable call."""
        function = fragment.get("function") if isinstance(fragment, Mapping) else None
        if not isinstance(fragment, Mapping) or not isinstance(function, Mapping | None):
            self._calls.append(fragment)
            return
        function = function or {}
        ident, name, arguments = fragment.get("id"), function.get("name"), function.get("arguments")
        call = self._call_of(fragment.get("index"), ident, name)
        if not isinstance(call.ident, str) or not call.ident:
            call.ident = ident
        if isinstance(name, str):
            # Repeated with each fragment, or sent in pieces.
            call.name += "" if name == call.name else name
        elif name is not None:
            call.odd_name = name
        if isinstance(arguments, str):
            call.go_on(arguments)
        elif isinstance(arguments, Mapping) and not call.arguments:
            # The whole object at once.
            call.odd_arguments, call.complete = arguments, True
        elif arguments is not None:
            call.odd_arguments = [arguments]

    def whole(self) -> list[object]:
        """The calls in the form of a whole answer."""
        return [call.whole() if isinstance(call, _Call) else call for call in self._calls]

    def _call_of(self, index: object, ident: object, name: object) -> _Call:
        place = index if isinstance(index, int) and not isinstance(index, bool) else None
        call = self._last if place is None else self._by_index.get(place)
        if call is None and not ident and not name:
            call = self._last
        if call is None or _begins_anew(call, ident, name):
            call = _Call()
            self._calls.append(call)
        if place is not None:
            self._by_index[place] = call
        self._last = call
        return call


def _begins_anew(call: _Call, ident: object, name: object) -> bool:
    if ident and call.ident and ident != call.ident:
        return True
    if not name:
        return False
    if call.complete:
        return True
    # A name in pieces comes before the arguments.
    return any(call.arguments) and name != call.name
