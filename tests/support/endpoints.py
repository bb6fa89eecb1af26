"""Model endpoints that imitate known servers: what each accepts, refuses and counts, and its error texts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from tests.support import model_server as said
from tests.support.model_server import Json, Received, Reply

LEVELS = (("high", "g-1"), ("low", "g-2"))


@dataclass(frozen=True)
class Like:
    """A server. ``context``: its limit in words, published by ``tells``; it answers a larger request by ``overflow``."""

    model: str = "small"
    key: str = ""
    native: bool = True
    bounds: bool = True
    parallel: bool = True
    content: Literal["text", "null"] = "text"
    alternate: bool = False
    json: Literal["", "json_schema", "json_object"] = "json_schema"
    streams: bool = True
    stream_options: bool = True
    limit_field: str = "max_tokens"
    reasoning: str = ""
    context: int = 5_000
    tells: Literal["list", "props", "ps", "nothing"] = "nothing"
    overflow: Literal["code", "type", "text", "silent", "own words"] = "code"
    counter: Literal["", "input-tokens", "tokenize"] = ""
    counts_wrong: bool = False

    def __call__(self, received: Received) -> Reply:
        if self.key and received.headers.get("authorization") != f"Bearer {self.key}":
            return said.error(401, "Incorrect API key provided")
        match received.path:
            case "/v1/models":
                size = {"max_model_len": self.context} if self.tells == "list" else {}
                return _json({"object": "list", "data": [{"id": self.model, "object": "model", **size}]})
            case "/props" if self.tells == "props":
                return _json({"default_generation_settings": {"n_ctx": self.context}})
            case "/api/ps" if self.tells == "ps":
                return _json({"models": [{"name": f"{self.model}:latest", "context_length": self.context}]})
            case "/v1/chat/completions/input_tokens" if self.counter == "input-tokens":
                return _json({"object": "input_tokens", "input_tokens": self._counted(received.json)})
            case "/tokenize" if self.counter == "tokenize":
                return _json({"count": self._counted(received.json), "tokens": []})
            case "/v1/chat/completions":
                return self._chat(received.json)
            case _:
                return said.error(404, "no such path")

    def _counted(self, asked: Json) -> int:
        return _words(asked) + (1 if self.counts_wrong else 0)

    def _chat(self, asked: Json) -> Reply:
        refusal = self._refusal(asked)
        if refusal is not None:
            return refusal
        used = min(_words(asked), self.context)
        reply = said.answer(
            self._message(asked),
            usage={"prompt_tokens": used, "completion_tokens": 5},
            model=self.model,
        )
        return said.streamed(reply) if asked.get("stream") and self.streams else reply

    def _refusal(self, asked: Json) -> Reply | None:
        if self.limit_field not in asked:
            return said.error(
                400, f"Unsupported parameter: use '{self.limit_field}' instead.", "unsupported_parameter"
            )
        if asked.get("model") != self.model:
            return said.error(404, "no such model", "model_not_found")
        if "stream_options" in asked and not self.stream_options:
            return said.error(400, "unknown field stream_options")
        if "maxLength" in json.dumps(asked.get("tools", [])) and not self.bounds:
            return said.error(400, "Failed to initialize samplers: failed to parse grammar")
        talk = [message["role"] for message in asked["messages"]]
        if self.alternate and any(one == other for one, other in pairwise(talk)):
            return said.error(500, "Conversation roles must alternate user/assistant/user/assistant/...")
        contents = {message.get("content") for message in asked["messages"] if message["role"] == "assistant"}
        if contents & ({""} if self.content == "null" else {None}):
            return said.error(400, "content of an assistant message cannot be taken")
        return self._overflow(_words(asked)) if _words(asked) > self.context else None

    def _overflow(self, words: int) -> Reply | None:
        limit = f"This model's maximum context length is {self.context} tokens. However, you requested {words} tokens."
        match self.overflow:
            case "code":
                return said.error(400, limit, "context_length_exceeded")
            case "text":
                return said.flat_error(400, limit, 400)
            case "type":
                body: Json = {"code": 400, "message": "too much", "type": "exceed_context_size_error"}
                return said.raw(
                    json.dumps({"error": {**body, "n_prompt_tokens": words, "n_ctx": self.context}}), 400
                )
            case "own words":
                return said.error(400, f"My ears are full after {self.context} words")
            case "silent":
                return None

    def _message(self, asked: Json) -> Json:
        content = str(asked["messages"][-1]["content"])
        wanted = LEVELS if "g-2" in content else LEVELS[:1]
        given = [{"level": level, "gauge": gauge, "note": "rain"} for level, gauge in wanted]
        thought = {self.reasoning: "hm"} if self.reasoning else {}
        message: Json = {"role": "assistant", "content": "yes", **thought}
        if asked.get("response_format", {}).get("type") == self.json:
            step = {"text": "It is high.", "calls": [{"tool": "report_level", "arguments": given[0]}]}
            message["content"] = json.dumps(step)
        elif asked.get("tools") and self.native and "Gauge" in content:
            made = given if self.parallel else given[:1]
            message["content"] = None
            message["tool_calls"] = [said.call("report_level", each, f"c{n}") for n, each in enumerate(made)]
        return message


def _words(asked: Json) -> int:
    return sum(len(str(message.get("content")).split()) for message in asked["messages"])


def _json(value: Any) -> Reply:
    return said.raw(json.dumps(value))


LLAMA_CPP = Like(bounds=False, tells="props", overflow="type", counter="input-tokens")
OLLAMA = Like(parallel=False, reasoning="reasoning", tells="ps", overflow="silent")
VLLM = Like(content="null", tells="list", overflow="text", counter="tokenize")
OPENAI = Like(key="sk-of-the-probe", limit_field="max_completion_tokens")
SMALL = Like(native=False, alternate=True, streams=False, tells="list", overflow="own words")
LLAMA_CPP_PYTHON = Like(native=False, json="json_object")
MUTE = Like(native=False, json="")
