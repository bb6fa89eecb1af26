"""The client against a real server that misbehaves in every way that real ones do."""

import asyncio
import json
import socket
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.core.facts import Observation
from anchorwatch.models.corrected import CorrectedModel
from anchorwatch.models.correction import Correction
from anchorwatch.models.endpoint import Endpoint, Patience
from anchorwatch.models.exchange import BODY_BYTES_MAX
from anchorwatch.models.openai import OpenAIModel, Retries
from anchorwatch.models.port import (
    ContextOverflow,
    ModelRefused,
    ModelRequest,
    ModelUnavailable,
    ProposedCall,
    Retry,
    Situation,
    TooLargeToSend,
)
from anchorwatch.models.profile import Profile
from anchorwatch.models.reply import EmptyAnswer
from anchorwatch.models.request import NUDGE
from anchorwatch.models.tokens import Counter
from anchorwatch.models.usage import Usage
from structlog.testing import capture_logs

from tests.support import model_server as said
from tests.support.model_server import ModelServer

KEY = "swordfish-of-the-account"
SITUATION = Situation(
    run_id=1,
    facts={},
    observation=Observation(text="", facts={}, at_ms=0, digest=""),
    wakes=(),
    steps=(),
    objectives=(),
    constraints=(),
    limits={},
    heartbeat_s=300.0,
)
TOOL = {
    "type": "function",
    "function": {"name": "launch", "description": "Launch.", "parameters": {"type": "object"}},
}
REQUEST = ModelRequest(
    ({"role": "system", "content": "Keep the fleet."}, {"role": "user", "content": "go"}), (TOOL,), SITUATION
)
QUICK = Retries(wait_initial_s=0.001, wait_s_max=0.01)
DEADLINE_S = 30.0


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("OPENAI_ORG_ID", "someone-elses")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-someone-elses")


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@asynccontextmanager
async def client(
    url: str, *, retries: Retries = QUICK, concurrency: int = 8, **endpoint: Any
) -> AsyncIterator[OpenAIModel]:
    made = OpenAIModel(
        Endpoint(url, said.MODEL, **{"key": KEY, **endpoint}),
        Counter(),
        concurrency=concurrency,
        retries=retries,
    )
    try:
        yield made
    finally:
        await made.close()


def always(reply: said.Reply) -> Callable[[said.Json], said.Reply]:
    return lambda _: reply


async def failure(server: ModelServer, script: said.Script, **options: Any) -> AnchorWatchError:
    server.script(script)
    async with client(server.url, **options) as model:
        with pytest.raises(AnchorWatchError) as raised:
            await model.complete(REQUEST, DEADLINE_S)
    report = "".join(traceback.format_exception(raised.value))
    assert KEY not in report
    return raised.value


# ---------------------------------------------------------------- what works


async def test_request_arrives_unchanged_and_the_answer_comes_back(server: ModelServer) -> None:
    server.script([said.calls(said.call("launch", {"count": 2}), content="I will launch.")])
    async with client(server.url) as model:
        reply = await model.complete(REQUEST, DEADLINE_S)
    assert reply.decision.calls == (ProposedCall("launch", {"count": 2}, "call_1"),)
    assert (reply.decision.text, reply.usage, reply.model) == ("I will launch.", Usage(100, 20), said.MODEL)
    (received,) = server.requests
    assert received.path == "/v1/chat/completions"
    assert received.json == {
        "model": said.MODEL,
        "messages": list(REQUEST.messages),
        "tools": [TOOL],
        "max_tokens": 4096,
    }
    assert received.headers["authorization"] == f"Bearer {KEY}"
    assert "openai-organization" not in received.headers


async def test_answer_that_repeats_the_key_is_kept_without_it(server: ModelServer) -> None:
    said_calls = (said.call("remember", {"text": f"it is {KEY}"}), said.call("remember", f'{{"text": "{KEY}'))
    server.script([said.calls(*said_calls, content=f"Your key is {KEY}.")])
    async with client(server.url) as model:
        reply = await model.complete(REQUEST, DEADLINE_S)
    assert KEY not in repr(reply)
    assert reply.decision.text == "Your key is [hidden]."
    assert reply.decision.calls[0].arguments == {"text": "it is [hidden]"}


async def test_placeholder_for_a_key_is_treated_as_any_other_key(server: ModelServer) -> None:
    server.script([said.text("ollama runs")])
    async with client(server.url, key="ollama") as model:
        assert (await model.complete(REQUEST, DEADLINE_S)).decision.text == "ollama runs"


async def test_local_server_needs_no_key_and_no_tools_means_no_tools(server: ModelServer) -> None:
    async with client(server.url, key="", limit_field="max_completion_tokens") as model:
        await model.complete(ModelRequest(REQUEST.messages, (), SITUATION), DEADLINE_S)
    (received,) = server.requests
    assert "tools" not in received.json
    assert received.json["max_completion_tokens"] == 4096
    assert "someone" not in json.dumps(dict(received.headers))


async def test_counted_request_is_the_request_sent(server: ModelServer) -> None:
    history = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "launch", "arguments": '{"cut'}}],
    }
    result = {"role": "tool", "tool_call_id": "1", "content": "a\0b\ud800" + "漢" * 1000}
    request = ModelRequest((*REQUEST.messages, history, result), (TOOL,), SITUATION)
    async with client(server.url) as model:
        counted = model.count(request)
        await model.complete(request, DEADLINE_S)
        sent = server.requests[0].json
        assert counted == model.counter.request(sent["messages"], sent["tools"])


async def test_profile_parts_each_shape_the_request(server: ModelServer) -> None:
    profile = Profile(
        parallel=False,
        null_content=True,
        bounds=False,
        extra={"temperature": 0, "chat_template_kwargs": {"x": 1}},
    )
    call = {"id": "1", "type": "function", "function": {"name": "launch", "arguments": "{}"}}
    history = {"role": "assistant", "content": "", "tool_calls": [call]}
    parameters = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}
    tool = {"type": "function", "function": {"name": "launch", "description": "", "parameters": parameters}}
    async with client(server.url, profile=profile) as model:
        await model.complete(ModelRequest((*REQUEST.messages, history), (tool,), SITUATION), DEADLINE_S)
    (received,) = server.requests
    assert received.json["parallel_tool_calls"] is False
    assert received.json["messages"][-1]["content"] is None
    assert received.json["tools"][0]["function"]["parameters"]["properties"] == {"n": {"type": "integer"}}
    assert (received.json["temperature"], received.json["chat_template_kwargs"]) == (0, {"x": 1})


async def test_serial_endpoint_takes_one_of_several_calls(server: ModelServer) -> None:
    server.script([said.calls(said.call("launch", {"n": 1}), said.call("launch", {"n": 2}))])
    async with client(server.url, profile=Profile(parallel=False)) as model:
        first, second = (await model.complete(REQUEST, DEADLINE_S)).decision.calls
    assert (first.arguments, second.arguments) == ({"n": 1}, None)


async def test_request_that_an_endpoint_would_cut_silently_is_not_sent(server: ModelServer) -> None:
    profile = Profile(overflow="silent", context_tokens=4_400)
    async with client(server.url, profile=profile) as model:
        await model.complete(REQUEST, DEADLINE_S)
        large = ModelRequest(({"role": "user", "content": "word " * 200},), (TOOL,), SITUATION)
        learned: list[object] = []
        corrected = CorrectedModel(model, Correction(), lambda *each: learned.append(each))
        with pytest.raises(TooLargeToSend, match="allows 4400 together"):
            await corrected.complete(large, DEADLINE_S)
        assert learned == [], "the endpoint has reported nothing"
        assert corrected.largest == 4_400 - 4_096, "the next request is made to fit"
    assert len(server.requests) == 1


async def test_overflow_in_the_words_of_an_endpoint_is_recognised(server: ModelServer) -> None:
    said_so = said.error(400, "My ears are full after 5000 words")
    profile = Profile(overflow="text", overflow_words="my ears are full")
    assert type(await failure(server, always(said_so), profile=profile)) is ContextOverflow
    assert type(await failure(server, always(said_so))) is ModelRefused


# ---------------------------------------------------------------- what passes

PASSING = [
    said.rate_limited("0"),
    said.error(408, "timeout"),
    said.error(409, "conflict"),
    said.error(425, "too early"),
    said.error(500, "oops"),
    said.html(502),
    said.raw("", 503),
    said.error(529, "overloaded"),
    said.html(),
    said.raw(""),
    said.raw("{"),
    said.error(200, "overloaded"),
    said.answer(None, choices=None),
    said.answer(None, choices=[]),
    said.cut(said.text("half an answer")),
    said.cut(said.text("no answer"), 0),
    said.raw(b"not gzip", 200, "application/json", content_encoding="gzip"),
]


@pytest.mark.parametrize("fault", PASSING)
async def test_passing_fault_is_retried_and_recorded(server: ModelServer, fault: said.Reply) -> None:
    server.script([fault, fault, said.text("Well.")])
    async with client(server.url) as model:
        with capture_logs() as logs:
            reply = await model.complete(REQUEST, DEADLINE_S)
    assert reply.decision.text == "Well."
    assert [(entry["event"], entry["attempt"]) for entry in logs] == [("model_retry", 1), ("model_retry", 2)]
    assert KEY not in json.dumps(logs)
    first, *others = (received.json for received in server.requests)
    assert others == [first, first]


@pytest.mark.parametrize("fault", PASSING)
async def test_lasting_fault_ends_after_the_last_attempt(server: ModelServer, fault: said.Reply) -> None:
    assert type(await failure(server, always(fault))) is ModelUnavailable
    assert len(server.requests) == QUICK.attempts_max


async def test_closed_port_makes_the_model_unavailable() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        async with client(f"http://127.0.0.1:{unused.getsockname()[1]}/v1") as model:
            with pytest.raises(ModelUnavailable, match="did not answer") as raised:
                await model.complete(REQUEST, DEADLINE_S)
    assert KEY not in str(raised.value)


async def test_retry_after_is_respected(server: ModelServer) -> None:
    server.script([said.rate_limited("0.3"), said.text("Well.")])
    loop = asyncio.get_running_loop()
    async with client(server.url) as model:
        started = loop.time()
        await model.complete(REQUEST, DEADLINE_S)
    assert loop.time() - started >= 0.3


async def test_wait_beyond_the_deadline_is_passed_on_without_waiting(server: ModelServer) -> None:
    found = await failure(server, always(said.rate_limited("3600")))
    assert isinstance(found, ModelUnavailable)
    assert found.retry_after_s == 3600.0
    assert len(server.requests) == 1


# ---------------------------------------------------------------- what does not pass


@pytest.mark.parametrize(
    ("reply", "expected", "hint"),
    [
        (said.error(401, f"Incorrect API key provided: {KEY}"), ModelRefused, "ANCHORWATCH_MODEL_KEY"),
        (said.error(403, "no"), ModelRefused, "ANCHORWATCH_MODEL_KEY"),
        (said.error(404, "no such model", "model_not_found"), ModelRefused, "ANCHORWATCH_MODEL_NAME"),
        (said.html(404), ModelRefused, "ANCHORWATCH_MODEL_URL"),
        (said.error(429, "pay", "insufficient_quota"), ModelRefused, "ANCHORWATCH_MODEL_KEY"),
        (said.raw("", 301, location="http://127.0.0.1:1/elsewhere"), ModelRefused, "ANCHORWATCH_MODEL_URL"),
        (said.error(400, "unknown field"), ModelRefused, ""),
        (said.raw('{"detail": "unprocessable"}', 422), ModelRefused, ""),
        (
            said.error(400, "too long", "context_length_exceeded"),
            ContextOverflow,
            "ANCHORWATCH_CONTEXT_TOKENS_MAX",
        ),
        (
            said.flat_error(
                400, "This model's maximum context length is 10 tokens. However, you requested 11 tokens", 400
            ),
            ContextOverflow,
            "ANCHORWATCH_CONTEXT_TOKENS_MAX",
        ),
        (
            said.error(
                400, "the request exceeds the available context size", 400, "exceed_context_size_error"
            ),
            ContextOverflow,
            "ANCHORWATCH_CONTEXT_TOKENS_MAX",
        ),
    ],
)
async def test_lasting_fault_is_reported_at_once(
    server: ModelServer, reply: said.Reply, expected: type[AnchorWatchError], hint: str
) -> None:
    found = await failure(server, always(reply))
    assert type(found) is expected
    assert hint in found.hint
    assert len(server.requests) == 1


async def test_wrong_path_names_the_url(server: ModelServer) -> None:
    async with client(server.url + "/chat") as model:
        server.script(always(said.error(404, "nothing here")))
        with pytest.raises(ModelRefused, match="ANCHORWATCH_MODEL_URL"):
            await model.complete(REQUEST, DEADLINE_S)


async def test_body_without_end_is_not_read_to_its_end(server: ModelServer) -> None:
    found = await failure(
        server, always(said.raw(b"x" * (BODY_BYTES_MAX + 1))), retries=Retries(attempts_max=1)
    )
    assert "more than" in found.message


# ---------------------------------------------------------------- what says nothing


async def test_empty_answer_is_retried_with_a_nudge(server: ModelServer) -> None:
    empty = said.answer({"role": "assistant", "content": None})
    server.script([empty, said.text("Well.")])
    async with client(server.url) as model:
        reply = await model.complete(REQUEST, DEADLINE_S)
    first, second = (received.json["messages"] for received in server.requests)
    assert reply.decision.text == "Well."
    assert second == [*first, {"role": "user", "content": NUDGE}]


async def test_endless_empty_answers_end(server: ModelServer) -> None:
    empty = said.answer(
        {"role": "assistant", "content": None}, usage={"prompt_tokens": 5, "completion_tokens": 0}
    )
    assert type(await failure(server, always(empty))) is EmptyAnswer
    assert [len(received.json["messages"]) for received in server.requests] == [2, 3, 3]


# ---------------------------------------------------------------- what was used

SPENT = {"prompt_tokens": 150, "completion_tokens": 40}
NOTHING: said.Json = {"role": "assistant", "content": None}


@pytest.mark.parametrize(
    "discarded",
    [
        said.answer(NOTHING, usage=SPENT),
        said.answer({"role": "assistant", "content": 7}, usage=SPENT),
        said.answer({"role": "assistant", "content": "", "tool_calls": "launch"}, usage=SPENT),
        said.answer(NOTHING, "content_filter", usage=SPENT),
        said.answer(NOTHING, "length", usage=SPENT),
        said.raw(json.dumps({"choices": [], "usage": SPENT})),
        said.raw(json.dumps({"error": {"message": "broken"}, "usage": SPENT})),
    ],
    ids=["empty", "invalid content", "invalid calls", "filtered", "cut", "no choice", "error"],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_discarded_answer_carries_its_usage(
    server: ModelServer, discarded: said.Reply, *, stream: bool
) -> None:
    # The stand-in streams whole answers only.
    if stream and b"finish_reason" in discarded.body and b'"launch"' not in discarded.body:
        discarded = said.streamed(discarded)
    found = await failure(server, always(discarded), profile=Profile(stream=stream))
    assert isinstance(found, (ModelUnavailable, ModelRefused))
    assert found.usage == Usage(150, 40)


async def test_discarded_answer_is_passed_on_before_the_next_request(server: ModelServer) -> None:
    seen: list[tuple[int, int, Usage | None]] = []

    async def on_retry(retry: Retry) -> None:
        seen.append((len(server.requests), retry.attempt, retry.fault.usage))

    server.script(
        [said.answer(NOTHING, usage=SPENT), said.rate_limited("0"), said.text("Well.", usage=SPENT)]
    )
    async with client(server.url) as model:
        reply = await model.complete(REQUEST, DEADLINE_S, on_retry)
    assert seen == [(1, 2, Usage(150, 40)), (2, 3, None)]
    assert reply.usage == Usage(150, 40)


async def test_retry_can_be_stopped(server: ModelServer) -> None:
    async def on_retry(retry: Retry) -> None:
        raise LookupError(str(retry.attempt))

    server.script(always(said.answer(NOTHING, usage=SPENT)))
    async with client(server.url) as model:
        with pytest.raises(LookupError, match="2"):
            await model.complete(REQUEST, DEADLINE_S, on_retry)
    assert len(server.requests) == 1


async def test_answer_that_breaks_off_or_never_comes_is_estimated(server: ModelServer) -> None:
    found = await failure(server, always(said.raw('{"choices": [{"message": {"content": "I wi')))
    assert isinstance(found, ModelUnavailable)
    assert found.usage is not None
    assert found.usage.prompt_tokens is None
    server.script(always(said.silent()))
    async with client(server.url) as model:
        with pytest.raises(ModelUnavailable) as late:
            await model.complete(REQUEST, 0.2)
    assert late.value.usage == Usage()


async def test_request_without_an_answer_uses_nothing(server: ModelServer) -> None:
    for script in (said.rate_limited("0"), said.error(500, "broken"), said.raw("<html>", 200)):
        found = await failure(server, always(script))
        assert isinstance(found, ModelUnavailable)
        assert found.usage is None


async def test_report_that_cannot_be_true_is_not_believed(server: ModelServer) -> None:
    server.script([said.text("Well.", usage={"prompt_tokens": 10**9, "completion_tokens": -3})])
    with capture_logs() as logs:
        async with client(server.url) as model:
            reply = await model.complete(REQUEST, DEADLINE_S)
    assert reply.usage == Usage()
    assert [each["event"] for each in logs] == ["model.usage_not_credible"]


# ---------------------------------------------------------------- time


async def test_slow_answer_within_the_deadline_is_an_answer(server: ModelServer) -> None:
    server.script([said.slow(said.text("Well."), 0.2)])
    async with client(server.url) as model:
        assert (await model.complete(REQUEST, DEADLINE_S)).decision.text == "Well."


@pytest.mark.parametrize(("deadline_s", "timeout_s"), [(0.2, 60.0), (60.0, 0.2), (0.0, 60.0)])
async def test_missing_answer_ends_at_the_deadline(
    server: ModelServer, deadline_s: float, timeout_s: float
) -> None:
    server.script(always(said.silent()))
    loop = asyncio.get_running_loop()
    async with client(server.url, patience=Patience(total_s=timeout_s)) as model:
        started = loop.time()
        with pytest.raises(ModelUnavailable, match=r"ANCHORWATCH_MODEL_TIMEOUT_S|did not answer"):
            await model.complete(REQUEST, deadline_s)
    assert loop.time() - started < 20.0


async def test_cancelling_closes_the_connection(server: ModelServer) -> None:
    server.script(always(said.silent()))
    async with client(server.url) as model:
        asked = asyncio.create_task(model.complete(REQUEST, DEADLINE_S))
        await asyncio.to_thread(server.wait_for_requests, 1)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        # Before the client is closed: the call itself lets go of its connection.
        await asyncio.to_thread(server.wait_for_gone)


async def test_concurrent_calls_stay_within_the_limit(server: ModelServer) -> None:
    server.script(always(said.silent()))
    async with client(server.url, concurrency=2) as model:
        asked = [asyncio.create_task(model.complete(REQUEST, DEADLINE_S)) for _ in range(5)]
        await asyncio.to_thread(server.wait_for_requests, 2)
        with pytest.raises(ModelUnavailable, match="did not answer within"):
            await model.complete(REQUEST, 0.2)
        assert len(server.requests) == 2
        server.script(always(said.text("Well.")))
        for task in asked[:2]:
            task.cancel()
        results: Sequence[Any] = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(result).__name__ for result in results] == ["CancelledError"] * 2 + ["ModelReply"] * 3
