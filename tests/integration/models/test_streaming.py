"""Streamed answers over HTTP: the same reply as at once, bounded waits, and no half answer taken for a whole one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from anchorwatch.models.endpoint import Endpoint, Patience
from anchorwatch.models.openai import OpenAIModel, Retries
from anchorwatch.models.port import ModelRefused, ModelReply, ModelUnavailable
from anchorwatch.models.profile import Profile
from anchorwatch.models.tokens import Counter

from tests.integration.models.test_openai import KEY, REQUEST
from tests.support import model_server as said
from tests.support.model_server import ModelServer

DEADLINE_S = 30.0
STREAMING = Profile(name="streaming", stream=True)
LONG = Patience()


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as started:
        yield started


@asynccontextmanager
async def client(
    server: ModelServer, profile: Profile = STREAMING, patience: Patience = LONG
) -> AsyncIterator[OpenAIModel]:
    endpoint = Endpoint(server.url, said.MODEL, KEY, profile=profile, patience=patience)
    retries = Retries(wait_initial_s=0.001, wait_s_max=0.01, attempts_max=2)
    model = OpenAIModel(endpoint, Counter(), retries=retries)
    try:
        yield model
    finally:
        await model.close()


async def ask(server: ModelServer, profile: Profile = STREAMING, patience: Patience = LONG) -> ModelReply:
    async with client(server, profile, patience) as model:
        return await model.complete(REQUEST, DEADLINE_S)


ANSWERS = [
    said.text("Well."),
    said.calls(
        said.call("launch", {"count": 2}, "a"), said.call("stop", {"id": "w-1"}, "b"), content="I will."
    ),
    said.calls(said.call("launch", '{"count": ')),
    said.text("<think>hm</think>Well.", usage=None),
]


@pytest.mark.parametrize("answer", ANSWERS)
async def test_answer_is_the_same_streamed_and_at_once(server: ModelServer, answer: said.Reply) -> None:
    server.script([said.streamed(answer), said.streamed(answer, done=False), answer])
    # A server that does not stream answers at once, whatever it was asked.
    first, without_done, unasked = [await ask(server) for _ in range(3)]
    asked = server.requests[0].json
    assert (asked["stream"], asked["stream_options"]) == (True, {"include_usage": True})
    server.script([answer])
    at_once = await ask(server, Profile())
    assert "stream" not in server.requests[0].json
    assert first == without_done == unasked == at_once


async def test_usage_is_not_requested_where_the_endpoint_lacks_it(server: ModelServer) -> None:
    server.script([said.streamed(said.text("Well."))])
    await ask(server, Profile(stream=True, stream_usage=False))
    assert "stream_options" not in server.requests[0].json


async def test_key_that_is_repeated_in_pieces_is_hidden(server: ModelServer) -> None:
    pieces = [{"choices": [{"delta": {"content": part}}]} for part in ("it is ", KEY[:9], KEY[9:], "!")]
    server.script([said.events(*pieces, {"choices": [{"delta": {}, "finish_reason": "stop"}]})])
    assert (await ask(server)).decision.text == "it is [hidden]!"


HALF = said.streamed(said.text("Well."))
BROKEN = [
    said.cut(HALF, len(HALF.body) // 4),
    said.events({"choices": [{"delta": {"content": "We"}}]}, done=False),
    said.events({"choices": [{"delta": {"content": "We"}}]}, {"error": {"message": "oops", "code": 500}}),
    said.events("{"),
    said.raw("", content_type="text/event-stream"),
    said.html(),
]


@pytest.mark.parametrize("fault", BROKEN)
async def test_incomplete_stream_is_requested_again(server: ModelServer, fault: said.Reply) -> None:
    server.script([fault, said.streamed(said.text("Well."))])
    assert (await ask(server)).decision.text == "Well."
    server.script([fault, fault])
    with pytest.raises(ModelUnavailable):
        await ask(server)
    assert len(server.requests) == 2


async def test_lasting_fault_in_the_middle_is_reported_at_once(server: ModelServer) -> None:
    server.script([said.events({"error": {"message": "no such model", "code": "model_not_found"}})])
    with pytest.raises(ModelRefused, match="no such model"):
        await ask(server)
    assert len(server.requests) == 1


# ---------------------------------------------------------------- time


@pytest.mark.parametrize(
    ("reply", "patience", "why"),
    [
        (said.silent(), Patience(first_token_s=0.2), r"nothing of an answer for 0\.2 s"),
        (
            said.stalled(said.events({"choices": [{"delta": {"role": "assistant", "content": ""}}]}), 70),
            Patience(first_token_s=0.2),
            r"nothing of an answer for 0\.2 s",
        ),
        (said.stalled(HALF, len(HALF.body) // 2), Patience(between_tokens_s=0.2), r"nothing more for 0\.2 s"),
        (said.stalled(HALF, len(HALF.body) // 2), Patience(total_s=0.3), r"did not answer within 0\.3 s"),
        (said.pinging(HALF, len(HALF.body) // 2), Patience(between_tokens_s=0.3), r"nothing more for 0\.3 s"),
        (said.pinging(HALF, 0), Patience(first_token_s=0.3), r"nothing of an answer for 0\.3 s"),
    ],
)
async def test_stalled_stream_is_abandoned_and_its_connection_closed(
    server: ModelServer, reply: said.Reply, patience: Patience, why: str
) -> None:
    server.script(lambda _: reply)
    async with client(server, patience=patience) as model:
        with pytest.raises(ModelUnavailable, match=why):
            await model.complete(REQUEST, DEADLINE_S)
        await asyncio.to_thread(server.wait_for_gone, len(server.requests))


async def test_stream_is_not_awaited_after_its_last_word(server: ModelServer) -> None:
    whole = said.streamed(said.text("Well."))
    server.script([said.stalled(whole, whole.body.rindex(b"data: {"))])
    reply = await ask(server, patience=Patience(between_tokens_s=1.0))
    assert (reply.decision.text, reply.usage.prompt_tokens) == ("Well.", None)


async def test_server_that_holds_its_stream_open_delays_no_answer(server: ModelServer) -> None:
    whole = said.streamed(said.text("Well."))
    held = said.Reply(whole.body + b"\n", 200, whole.headers, stall_at=len(whole.body))
    server.script([held])
    assert (await ask(server)).usage.prompt_tokens == 100


async def test_kept_alive_connection_is_not_awaited_after_last_word(server: ModelServer) -> None:
    whole = said.streamed(said.text("Well."))
    server.script([said.pinging(whole, whole.body.rindex(b"data: {"))])
    assert (await ask(server, patience=Patience(between_tokens_s=1.0))).decision.text == "Well."


async def test_stream_that_breaks_after_its_last_word_is_an_answer(server: ModelServer) -> None:
    whole = said.streamed(said.text("Well."))
    server.script([said.cut(whole, whole.body.rindex(b"data: {"))])
    assert (await ask(server)).decision.text == "Well."


async def test_cancelling_closes_the_connection(server: ModelServer) -> None:
    server.script(lambda _: said.stalled(HALF, len(HALF.body) // 2))
    async with client(server) as model:
        asked = asyncio.create_task(model.complete(REQUEST, DEADLINE_S))
        await asyncio.to_thread(server.wait_for_requests, 1)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await asyncio.to_thread(server.wait_for_gone)
