"""Finds out how an endpoint behaves by asking it, and writes its profile. Each question is bounded, and there are few."""

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
"""How often a model is asked for something that it may or may not do."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One question and what came of it, in words for people."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class Report:
    """What was found. ``problem``: why the endpoint cannot be used, if so."""

    url: str
    model: str
    profile: Profile
    findings: tuple[Finding, ...]
    problem: str = ""


@dataclass(slots=True)
class Probe:
    """Asks one endpoint.

    ``overflow_tokens``: the size of the request that is to be too large; None: beyond what the endpoint says of itself.
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
        """Ask all questions.

        Raises:
            Unavailable: nobody answers. Denied: the key is not accepted. NotFound: no such model, or nothing that speaks
            chat.completions. BadInput: a model must be named.
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
        """The answer to a question that need not be answered."""
        try:
            return await asking()
        except Unavailable:
            return None

    # --- who is there

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
        self._say("models", f"{len(known)} listed; {self.model} is asked")

    async def _size(self) -> None:
        """How many tokens it takes, by its own word; asked once the model is loaded."""
        for name, read in (("props", ask.context_in_props), ("api/ps", ask.context_in_ps)):
            if self._found["context_tokens"]:
                break
            address = f"{self.client.root}/{name}"
            answer = await self._quietly(lambda to=address: self.client.get(to))  # type: ignore[misc]
            self._found["context_tokens"] = read(answer.body, self.model) if answer and answer.ok else 0
        self._say("context", f"{self._found['context_tokens'] or 'not said how many'} tokens")

    def _check_key(self, answer: Answer) -> None:
        if answer.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            raise Denied(
                f"{self.client.url} answers {answer.status}: {self._why(answer)}",
                hint="give its key with --key KEY or --key-file FILE",
            )

    def _what(self, answer: Answer) -> str:
        body = answer.body
        if isinstance(body, str):
            kind = "a web page" if looks_like_html(body) else "no JSON"
            return f"status {answer.status}, {kind}"
        return f"status {answer.status}"

    async def _first_words(self) -> int:
        """Have it say anything; the tokens that it counted, 0: it does not count."""
        answer = await self._chat(ask.plain())
        if answer.status == HTTPStatus.BAD_REQUEST and "max_completion_tokens" in str(answer.body):
            self._limit_field = self._found["limit_field"] = "max_completion_tokens"
            answer = await self._chat(ask.plain())
        self._check_key(answer)
        reply = ask.reply_of(answer)
        if answer.status == HTTPStatus.GATEWAY_TIMEOUT:
            raise Unavailable(self._why(answer), hint="--timeout SECONDS waits longer")
        if reply is None:
            why = self._what(answer) if answer.ok else self._why(answer)
            raise NotFound(
                f"{self.client.url} gives no usable answer of {self.model}: {why}",
                hint="see that the model is there, and that the URL ends where /chat/completions begins",
            )
        reasoning = ask.reasoning_in(answer)
        if reasoning and reasoning != "<think>":
            self._found["reasoning_field"] = reasoning
        self._say(
            "answers",
            f"as {reply.model or 'a model without a name'}; thinking in {reasoning or 'nothing seen'}",
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
        why = "it answered without one that could be run" if answer.ok else self._why(answer)
        self._say("tool calls", f"none: {why}")
        self._tools = [ask.tool()]
        return False

    async def _several(self) -> None:
        for _ in range(TRIES):
            if ask.good_calls(ask.reply_of(await self._chat(ask.call(self._tools, ask.TWO)))) > 1:
                self._say("several calls at a time", "yes")
                return
        # It is told to make one at a time only where it takes that word.
        taken = await self._chat({**ask.call(self._tools, ask.TWO), "parallel_tool_calls": False})
        self._found["parallel"] = not taken.ok
        self._say("several calls at a time", "one was made where two were asked for")

    async def _content(self) -> None:
        for content in ("", None):
            answer = await self._chat(ask.history(self._tools, content))
            if answer.ok:
                self._found["null_content"] = content is None
                self._say(
                    "an answer without words",
                    "goes back as null" if content is None else "goes back as empty text",
                )
                return
        self._say("an answer without words", f"is refused both as text and as null: {self._why(answer)}")

    async def _in_json(self) -> str:
        """Whether it calls by JSON; the problem, where it does not."""
        for form in ("json_schema", "json_object"):
            for _ in range(TRIES):
                answer = await self._chat(ask.in_json(self._tools, form))
                if ask.good_calls(ask.reply_of(answer, Form(json=True, one_call=True))):
                    self._found |= {"calls": "json-schema", "parallel": False, "json_form": form}
                    self._say("JSON of a schema", f"yes, as {form}")
                    return ""
                if not answer.ok:
                    break
        why = "its answer was not of the schema" if answer.ok else self._why(answer)
        self._say("JSON of a schema", f"no: {why}")
        return f"{self.model} calls tools neither natively nor as JSON of a schema"

    # --- the rest

    async def _in_a_row(self) -> None:
        apart, joined = await self._chat(ask.two_in_a_row()), None
        if not apart.ok:
            joined = await self._chat(ask.plain())
        self._found["alternate"] = bool(joined and joined.ok)
        if joined is None:
            self._say("messages in a row", "are taken")
        else:
            self._say(
                "messages in a row", f"must take turns: {self._why(apart)}" if joined.ok else self._why(apart)
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
            self._say("streaming", f"{'as whole answers' if same else 'calls are lost in it'}, {usage}")
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
                self._say("counter", f"{form} says {tokens} where {usage} were used: not believed")
                continue
            self._found["counter"] = form
            self._say("counter", f"{form}, {tokens} tokens of a short request")
            return
        self._say("counter", "none of its own")

    async def _too_large(self) -> None:
        known = self._found["context_tokens"]
        words = self.overflow_tokens if self.overflow_tokens is not None else round(known * OVERFLOW_MARGIN)
        if not 0 < words <= OVERFLOW_TOKENS_MAX:
            self._say("too large a request", "not asked; --overflow-tokens N sends one of N tokens")
            return
        answer = await self._chat(ask.large(words), 16)
        seen = ask.overflow_of(answer, words)
        if seen.shape:
            self._found |= {"overflow": seen.shape, "overflow_words": seen.words}
            # A list may tell what the model could take, and not what this server lets it.
            self._found["context_tokens"] = min(filter(None, (known, seen.context_tokens)), default=0)
        self._say("too large a request", self.client.redact(f"{seen.shape or 'not seen'}: {seen.detail}"))
