"""The same broken answers over a real connection, with statuses, headers and cuts that do not fit them."""

import asyncio
from typing import Any

import pytest
from anchorwatch.core.facts import Observation
from anchorwatch.models.endpoint import Endpoint, Patience
from anchorwatch.models.openai import OpenAIModel, Retries
from anchorwatch.models.port import ContextOverflow, ModelRefused, ModelRequest, ModelUnavailable, Situation
from anchorwatch.models.profile import JSON_SCHEMA, OPENAI, Profile
from anchorwatch.models.tokens import Counter
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.support.model_server import MODEL, ModelServer, Reply
from tests.support.mutations import bodies

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
PROFILES = (OPENAI, Profile(stream=True), JSON_SCHEMA, JSON_SCHEMA.model_copy(update={"stream": True}))
TOOL = {"type": "function", "function": {"name": "look", "description": "", "parameters": {"type": "object"}}}
REQUEST = ModelRequest(({"role": "user", "content": "go"},), (TOOL,), SITUATION)
HANG_S = 30.0

replies = st.builds(
    Reply,
    body=bodies | bodies.map(lambda body: b"data: " + body + b"\n\ndata: [DONE]\n\n"),
    status=st.sampled_from(
        [200, 200, 200, 204, 201, 299, 300, 304, 400, 401, 404, 413, 422, 429, 500, 503, 599]
    ),
    headers=st.sampled_from(
        [
            {},
            {"content-type": "text/html"},
            {"content-type": "text/event-stream"},
            {"content-encoding": "gzip"},
            {"content-encoding": "identity", "retry-after": "soon"},
            {"content-type": "application/json; charset=utf-16"},
            {"location": "http://127.0.0.1:1/"},
        ]
    ),
    cut_at=st.none() | st.integers(0, 300),
)


async def ask_each(script: list[Reply], profile: Profile) -> None:
    with ModelServer() as server:
        endpoint = Endpoint(
            server.url, MODEL, "swordfish", patience=Patience(total_s=HANG_S), profile=profile
        )
        model = OpenAIModel(endpoint, Counter(), retries=Retries(wait_initial_s=0.0, attempts_max=2))
        try:
            for reply in script:
                server.script([reply, reply])
                await ask(model)
        finally:
            await model.close()


async def ask(model: OpenAIModel) -> None:
    started = asyncio.get_running_loop().time()
    answer: Any
    try:
        answer = await model.complete(REQUEST, HANG_S)
    except (ModelUnavailable, ModelRefused, ContextOverflow) as error:
        answer = str(error)
    assert answer
    assert "swordfish" not in str(answer)
    assert asyncio.get_running_loop().time() - started < HANG_S, "a broken answer must not hang"


# One server answers a list of replies: starting a server takes longer than all of them.
@given(st.lists(replies, min_size=1, max_size=12), st.sampled_from(PROFILES))
@settings(max_examples=25, deadline=None)
def test_broken_connection_or_answer_is_a_reply_or_a_port_error(
    script: list[Reply], profile: Profile
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        with capture_logs():
            asyncio.run(ask_each(script, profile))
