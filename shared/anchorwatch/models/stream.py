"""Assembles a streamed answer, so that the same code parses it into the same reply as a whole one. Pure.

Servers differ: calls without an index or all with the same one, ids that come late, twice or never, names in
pieces, usage in the last chunk or nowhere, no ``[DONE]``, an error in the middle. A truncated stream is not an answer (INV-607).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from anchorwatch.models.events import Event, Events
from anchorwatch.models.stream_calls import Calls
from anchorwatch.models.usage import Usage, read_usage, written

DONE = "[DONE]"
_THOUGHTS = ("reasoning_content", "reasoning")


class BrokenStream(ValueError):
    """The stream is not an answer; the text says why and follows the endpoint's name."""


class Stream:
    """A streamed answer, piece by piece. ``reasoning_field``: a further field with thinking.

    ``begun``: a part of the answer arrived. ``finished``: its finish reason arrived. ``ended``: the server ended the stream.
    """

    def __init__(self, reasoning_field: str = "") -> None:
        self._thought_fields = {*_THOUGHTS, reasoning_field} - {""}
        self.begun = False
        self.ended = False
        self._events = Events()
        self._heard = 0
        self._error: object = None
        self._problem = ""
        self._model: object = None
        self._usage: object = None
        self._finish: object = None
        self._content: list[Any] = []
        self._refusal: list[str] = []
        self._thoughts: dict[str, list[str]] = {}
        self._calls = Calls()
        self._written = 0

    @property
    def usage(self) -> Usage:
        """The usage so far."""
        return replace(read_usage(self._usage), written=self._written)

    @property
    def finished(self) -> bool:
        return self._finish is not None

    @property
    def phase(self) -> tuple[bool, bool, int]:
        """Progress: it changes with each part of the answer, with its finish reason and with its end."""
        at_work = self.begun and not self.finished
        return self.ended, self.finished, self._heard if at_work else 0

    def feed(self, part: bytes) -> None:
        """Feed a piece of the body."""
        for event in self._events.feed(part):
            self._take(event)

    def close(self) -> bytes | None:
        """The body of the assembled answer as JSON; None: the body has no event and is not a stream.

        Raises:
            BrokenStream: it is truncated or invalid.
        """
        for event in self._events.close():
            self._take(event)
        if not self._heard:
            return None
        if self._error is not None:
            return _dump({"error": self._error})
        if self._problem:
            raise BrokenStream(self._problem)
        if not self.finished:
            raise BrokenStream("broke off its answer")
        return _dump(self._body())

    def _body(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self._whole_content()}
        message |= {name: "".join(parts) for name, parts in self._thoughts.items()}
        if self._refusal:
            message["refusal"] = "".join(self._refusal)
        if self._calls.called:
            message["tool_calls"] = self._calls.whole()
        choice = {"index": 0, "message": message, "finish_reason": self._finish}
        return {"model": self._model, "choices": [choice], "usage": self._usage}

    def _whole_content(self) -> Any:  # noqa: ANN401 - whatever was sent
        if not self._content:
            return None
        if all(isinstance(part, str) for part in self._content):
            return "".join(self._content)
        odd = next((part for part in self._content if not isinstance(part, str | list)), None)
        if odd is not None:
            return odd
        return [each for part in self._content for each in ([part] if isinstance(part, str) else part)]

    def _take(self, event: Event) -> None:
        if self.ended:
            return
        self._heard += 1
        try:
            chunks = [_parse("\n".join(event.lines))]
        except ValueError:
            # Some servers put no empty line between two events.
            chunks = [_parse_or_none(line) for line in event.lines if line]
        for chunk in chunks:
            self._take_chunk(chunk, error=event.error)

    def _take_chunk(self, chunk: object, *, error: bool) -> None:
        if chunk == DONE:
            self.ended = True
        elif not isinstance(chunk, Mapping):
            if error:
                self._error, self.ended = chunk or "error", True
            self._problem = self._problem or "sent a part of its answer that is not a JSON object"
        elif error or chunk.get("error") or chunk.get("object") == "error":
            self._error = chunk.get("error") or dict(chunk)
            self.ended = True
        else:
            self._take_completion(chunk)

    def _take_completion(self, chunk: Mapping[str, Any]) -> None:
        self._model = self._model or chunk.get("model")
        self._usage = chunk.get("usage") or self._usage
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            # One answer was requested; any other choice is ignored.
            if isinstance(choice, Mapping) and (choice.get("index") or 0) == 0:
                self._take_choice(choice)

    def _take_choice(self, choice: Mapping[str, Any]) -> None:
        if choice.get("error"):
            self._error = choice["error"]
            self.ended = True
            return
        self._usage = choice.get("usage") or self._usage
        delta = choice.get("delta")
        if not isinstance(delta, Mapping):
            delta = choice.get("message")
        if isinstance(delta, Mapping):
            self._take_delta(delta)
        self._finish = choice.get("finish_reason") or self._finish

    def _take_delta(self, delta: Mapping[str, Any]) -> None:
        content = delta.get("content")
        if content is not None:
            self._content.append([content] if isinstance(content, Mapping) else content)
        if isinstance(refusal := delta.get("refusal"), str):
            self._refusal.append(refusal)
        for name in self._thought_fields:
            if isinstance(thought := delta.get(name), str):
                self._thoughts.setdefault(name, []).append(thought)
                self._written += written(thought)
        fragments = delta.get("tool_calls")
        if not fragments and isinstance(delta.get("function_call"), Mapping):
            fragments = [{"function": delta["function_call"]}]
        for fragment in fragments if isinstance(fragments, list) else [fragments] if fragments else ():
            self._calls.add(fragment)
        self._written += sum(map(written, (content, refusal, fragments)))
        thought = any(delta.get(name) for name in self._thought_fields)
        self.begun = self.begun or bool(content or fragments or thought)


def _parse(text: str) -> Any:  # noqa: ANN401 - JSON
    if text.strip() == DONE:
        return DONE
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _parse_or_none(text: str) -> Any:  # noqa: ANN401 - JSON
    try:
        return _parse(text)
    except ValueError:
        return None


def _dump(body: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(body).encode()
    except (ValueError, RecursionError):
        raise BrokenStream("sent an answer that is nested too deeply") from None
