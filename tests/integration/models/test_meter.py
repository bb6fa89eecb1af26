"""An endpoint's own counter, over HTTP: its word counts before a request is sent, and where it has none the estimate stands."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest
from anchorwatch.core.facts import Observation
from anchorwatch.models.corrected import UNPROVED_RATIO, CorrectedModel
from anchorwatch.models.correction import Correction
from anchorwatch.models.endpoint import Endpoint
from anchorwatch.models.meter import CounterForm, Meter, MeteredModel, Place
from anchorwatch.models.openai import OpenAIModel
from anchorwatch.models.port import ModelRequest, Situation
from anchorwatch.models.tokens import Counter

from tests.support.model_server import (
    MODEL,
    Json,
    ModelServer,
    Reply,
    cut,
    error,
    html,
    raw,
    silent,
    text,
)

KEY = "swordfish-of-the-counter"
TOOL = {"type": "function", "function": {"name": "look", "description": "", "parameters": {"type": "object"}}}
REQUEST = ModelRequest(
    ({"role": "user", "content": "how many proofs an hour? " * 20},),
    (TOOL,),
    Situation(1, {}, Observation("", {}, 0, ""), [], [], (), (), {}, 300),
)
COUNTED = Counter().sent(REQUEST)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@asynccontextmanager
async def metered(
    server: ModelServer, form: CounterForm, deadline_s: float = 5.0
) -> AsyncIterator[CorrectedModel]:
    inner = OpenAIModel(Endpoint(server.url, MODEL, KEY), Counter())
    meter = Meter(Place(form, server.url, MODEL, KEY), deadline_s=deadline_s)
    model = CorrectedModel(MeteredModel(inner, meter), Correction(), lambda *_: None)
    try:
        yield model
    finally:
        await model.close()


@pytest.mark.parametrize(
    ("form", "path", "answer"),
    [
        ("input-tokens", "/v1/chat/completions/input_tokens", {"object": "input_tokens"}),
        ("tokenize", "/tokenize", {"max_model_len": 8192, "tokens": [1, 2]}),
    ],
)
async def test_endpoint_count_is_of_the_request_as_sent_and_is_learned(
    server: ModelServer, form: CounterForm, path: str, answer: Json
) -> None:
    own = COUNTED + 77
    field = "input_tokens" if form == "input-tokens" else "count"
    server.script([raw(json.dumps({**answer, field: own})), text("fine")])
    async with metered(server, form) as model:
        assert model.count(REQUEST) == COUNTED, "no reserve: it is asked before anything is sent"
        assert await model.measure(REQUEST) == own
        assert model.count(REQUEST) == own
        await model.complete(REQUEST, 10.0)
    asked, sent = server.requests
    assert asked.path == path
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert (asked.json["messages"], asked.json["tools"]) == (sent.json["messages"], sent.json["tools"])


BROKEN: dict[str, Callable[[], Reply]] = {
    "not there": lambda: error(404, "no such path"),
    "a fault": lambda: error(500, f"cannot count with {KEY}"),
    "a page": html,
    "no number": lambda: raw('{"input_tokens": "many"}'),
    "true": lambda: raw('{"input_tokens": true}'),
    "none": lambda: raw('{"input_tokens": 0}'),
    "a list": lambda: raw("[]"),
    "cut": lambda: cut(raw('{"input_tokens": 12}'), 5),
    "silence": silent,
}


@pytest.mark.parametrize("kind", BROKEN)
async def test_counter_that_does_not_count_is_dropped_for_the_estimate(
    server: ModelServer, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server.script(lambda _: BROKEN[kind]())
    async with metered(server, "input-tokens", deadline_s=0.3 if kind == "silence" else 5.0) as model:
        assert await model.measure(REQUEST) is None
        assert await model.measure(REQUEST) is None
        assert model.count(REQUEST) == math.ceil(COUNTED * UNPROVED_RATIO), (
            "with the reserve of what is not known"
        )
    assert len(server.requests) == 1, "it is not asked again at once"
    assert KEY not in capsys.readouterr().out
