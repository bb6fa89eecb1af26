"""Probes an endpoint with a few bounded requests and derives its profile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from anchorwatch.core.errors import BadInput, Denied, NotFound, Unavailable
from anchorwatch.models import probe_questions as ask
from anchorwatch.models.faults import fault_of, looks_like_html
from anchorwatch.models.meter import Place
from anchorwatch.models.probe_client import Answer, Client
from anchorwatch.models.profile import Profile
from anchorwatch.models.reply import Form
from anchorwatch.models.request import JsonObject

OVERFLOW_MARGIN = 1.5
OVERFLOW_TOKENS_MAX = 400_000
TRIES = 2
"""Attempts for behaviour that a model shows only sometimes."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One check and its result, for people."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class Report:
    """The findings. ``problem``: why the endpoint cannot be used, if so."""

    url: str
    model: str
    profile: Profile
    findings: tuple[Finding, ...]
    problem: str = ""


@dataclass(slots=True)
class Probe:
    """Probes one endpoint.

    ``overflow_tokens``: the size of the oversized test request; None: beyond the endpoint's reported limit.
    """

    client: Client
    model: str = ""
    overflow_tokens: int | None = None
    name: str = "probed"
    _found: dict[str, Any] = field(default_factory=dict)
    _findings: list[Finding] = field(default_factory=list)
    _limit_field: str = "max_tokens"
    _tools: list[JsonObject] = field(default_factory=lambda: [ask.tool()])

    async def run(self) -> Report:
        """Run all checks.

        Raises:
            Unavailable: no answer. Denied: the key is not accepted. NotFound: unknown model, or no chat.completions
            API. BadInput: a model must be named.
        """
        await self._list()
        usage = await self._first_words()
        await self._size()
        native = await self._native()
        problem = ""
        if native:
            await self._several()
            await self._content()
        else:
            problem = await self._in_json()
        await self._in_a_row()
        await self._streamed()
        await self._counters(usage)
        await self._too_large()
        profile = Profile(name=self.name, **self._found)
        return Report(self.client.url, self.model, profile, tuple(self._findings), problem)

    def _say(self, question: str, answer: str) -> None:
        self._findings.append(Finding(question, answer))

    def _why(self, answer: Answer) -> str:
        return self.client.redact(str(fault_of(answer.status, answer.body, redact=str).message))

    async def _chat(self, body: JsonObject, tokens_max: int = ask.ANSWER_TOKENS_MAX) -> Answer:
        return await self.client.chat({"model": self.model, **body, self._limit_field: tokens_max})

    async def _quietly(self, asking: Callable[[], Awaitable[Answer]]) -> Answer | None:
        """The answer to an optional request; None: no answer."""
        try:
            return await asking()
        except Unavailable:
            return None

    # --- API and model

    async def _list(self) -> None:
        answer = await self.client.get(f"{self.client.url}/models")
        if answer.status == HTTPStatus.NOT_FOUND or not ask.contexts(answer.body):
            below = await self._quietly(lambda: self.client.get(f"{self.client.url}/v1/models"))
            if below is not None and below.ok and ask.contexts(below.body):
                self.client.url, answer = f"{self.client.url}/v1", below
                self._say("url", f"the API is at {self.client.url}")
        self._check_key(answer)
        known = ask.contexts(answer.body) if answer.ok else {}
        if not known and not self.model:
            raise NotFound(
                f"{self.client.url}/models lists no models: {self._what(answer)}",
                hint="the URL must end where /chat/completions begins, most often with /v1; or name a model with --model",
            )
        if not self.model:
            if len(known) > 1:
                some = ", ".join(sorted(known)[:10])
                raise BadInput(
                    f"the endpoint has {len(known)} models: {some}", hint="choose one with --model NAME"
                )
            self.model = next(iter(known))
        self._found["context_tokens"] = known.get(self.model, 0)
        self._say("models", f"{len(known)} listed; using {self.model}")

    async def _size(self) -> None:
        """The reported context size in tokens; read once the model is loaded."""
        for name, read in (("props", ask.context_in_props), ("api/ps", ask.context_in_ps)):
            if self._found["context_tokens"]:
                break
            address = f"{self.client.root}/{name}"
            answer = await self._quietly(lambda to=address: self.client.get(to))  # type: ignore[misc]
            self._found["context_tokens"] = read(answer.body, self.model) if answer and answer.ok else 0
        self._say("context", f"{self._found['context_tokens'] or 'unknown number of'} tokens")

    def _check_key(self, answer: Answer) -> None:
        if answer.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            raise Denied(
                f"{self.client.url} answers {answer.status}: {self._why(answer)}",
                hint="pass its key with --key KEY or --key-file FILE",
            )

    def _what(self, answer: Answer) -> str:
        body = answer.body
        if isinstance(body, str):
            kind = "a web page" if looks_like_html(body) else "no JSON"
            return f"status {answer.status}, {kind}"
        return f"status {answer.status}"

    async def _first_words(self) -> int:
        """Request any answer; returns the reported prompt tokens, 0: not reported."""
        answer = await self._chat(ask.plain())
        if answer.status == HTTPStatus.BAD_REQUEST and "max_completion_tokens" in str(answer.body):
            self._limit_field = self._found["limit_field"] = "max_completion_tokens"
            answer = await self._chat(ask.plain())
        self._check_key(answer)
        reply = ask.reply_of(answer)
        if answer.status == HTTPStatus.GATEWAY_TIMEOUT:
            raise Unavailable(self._why(answer), hint="raise --timeout SECONDS")
        if reply is None:
            why = self._what(answer) if answer.ok else self._why(answer)
            raise NotFound(
                f"{self.client.url} gives no usable answer for {self.model}: {why}",
                hint="check that the model exists, and that the URL ends where /chat/completions begins",
            )
        reasoning = ask.reasoning_in(answer)
        if reasoning and reasoning != "<think>":
            self._found["reasoning_field"] = reasoning
        self._say(
            "answers",
            f"as {reply.model or 'a model without a name'}; thinking in {reasoning or 'no field'}",
        )
        counted = reply.usage.prompt_tokens or 0
        self._say("usage", f"{counted} tokens of a short request" if counted else "not reported")
        return counted

    # --- tools

    async def _native(self) -> bool:
        for bounds in (True, False):
            if not bounds:
                self._tools = [ask.without_bounds(each) for each in self._tools]
            for _ in range(TRIES):
                answer = await self._chat(ask.call(self._tools))
                if ask.good_calls(ask.reply_of(answer)):
                    self._found["bounds"] = bounds
                    self._say("tool calls", "native" if bounds else "native, with schemas without bounds")
                    return True
                if not answer.ok:
                    break
            if answer.ok:
                break
        why = "its answer has no valid call" if answer.ok else self._why(answer)
        self._say("tool calls", f"none: {why}")
        self._tools = [ask.tool()]
        return False

    async def _several(self) -> None:
        for _ in range(TRIES):
            if ask.good_calls(ask.reply_of(await self._chat(ask.call(self._tools, ask.TWO)))) > 1:
                self._say("several calls at a time", "yes")
                return
        # One call at a time is requested only if the endpoint accepts that field.
        taken = await self._chat({**ask.call(self._tools, ask.TWO), "parallel_tool_calls": False})
        self._found["parallel"] = not taken.ok
        self._say("several calls at a time", "no: one call for a request of two")

    async def _content(self) -> None:
        for content in ("", None):
            answer = await self._chat(ask.history(self._tools, content))
            if answer.ok:
                self._found["null_content"] = content is None
                self._say(
                    "an answer without text",
                    "sent back as null" if content is None else "sent back as empty text",
                )
                return
        self._say("an answer without text", f"refused both as text and as null: {self._why(answer)}")

    async def _in_json(self) -> str:
        """Check calls by JSON schema; returns the problem, or an empty text."""
        for form in ("json_schema", "json_object"):
            for _ in range(TRIES):
                answer = await self._chat(ask.in_json(self._tools, form))
                if ask.good_calls(ask.reply_of(answer, Form(json=True, one_call=True))):
                    self._found |= {"calls": "json-schema", "parallel": False, "json_form": form}
                    self._say("JSON of a schema", f"yes, as {form}")
                    return ""
                if not answer.ok:
                    break
        why = "its answer does not match the schema" if answer.ok else self._why(answer)
        self._say("JSON of a schema", f"no: {why}")
        return f"{self.model} calls tools neither natively nor as JSON of a schema"

    # --- other checks

    async def _in_a_row(self) -> None:
        apart, joined = await self._chat(ask.two_in_a_row()), None
        if not apart.ok:
            joined = await self._chat(ask.plain())
        self._found["alternate"] = bool(joined and joined.ok)
        if joined is None:
            self._say("messages in a row", "accepted")
        else:
            self._say(
                "messages in a row", f"must alternate: {self._why(apart)}" if joined.ok else self._why(apart)
            )

    async def _streamed(self) -> None:
        in_json = self._found.get("calls") == "json-schema"
        form = self._found.get("json_form", "")
        body = ask.in_json(self._tools, form) if in_json else ask.call(self._tools)
        for options in ({"stream_options": {"include_usage": True}}, {}):
            answer = await self._chat({**body, "stream": True, **options})
            reply = ask.reply_of(answer, Form(json=in_json))
            if not answer.content.lstrip().startswith((b"data:", b":", b"event:", b"id:")):
                continue
            same = bool(ask.good_calls(reply))
            counted = bool(reply and reply.usage.prompt_tokens is not None)
            self._found |= {"stream": same, "stream_usage": bool(options)}
            usage = "with its usage" if counted else "without usage"
            self._say("streaming", f"{'as whole answers' if same else 'calls are lost'}, {usage}")
            return
        self._say("streaming", "no")

    async def _counters(self, usage: int) -> None:
        for form in ("input-tokens", "tokenize"):
            place = Place(form, self.client.url, self.model)
            body = place.asked(ask.as_request(ask.plain()))
            answer = await self._quietly(lambda to=place, said=body: self.client.post(to.address, said))  # type: ignore[misc]
            tokens = place.read(answer.body) if answer and answer.ok else None
            if tokens is None:
                continue
            if usage and tokens != usage:
                self._say("counter", f"{form} says {tokens} but {usage} were used: ignored")
                continue
            self._found["counter"] = form
            self._say("counter", f"{form}, {tokens} tokens of a short request")
            return
        self._say("counter", "none")

    async def _too_large(self) -> None:
        known = self._found["context_tokens"]
        words = self.overflow_tokens if self.overflow_tokens is not None else round(known * OVERFLOW_MARGIN)
        if not 0 < words <= OVERFLOW_TOKENS_MAX:
            self._say("too large a request", "skipped; --overflow-tokens N sends a request of N tokens")
            return
        answer = await self._chat(ask.large(words), 16)
        seen = ask.overflow_of(answer, words)
        if seen.shape:
            self._found |= {"overflow": seen.shape, "overflow_words": seen.words}
            # A list may report the model's limit and not this server's.
            self._found["context_tokens"] = min(filter(None, (known, seen.context_tokens)), default=0)
        self._say("too large a request", self.client.redact(f"{seen.shape or 'unknown'}: {seen.detail}"))
