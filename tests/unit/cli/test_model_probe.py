"""``models probe``: what an endpoint does is found out by asking it, and printed as the profile that fits it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.models.profile import Profile, find, read

from tests.support import endpoints
from tests.support import model_server as said
from tests.support.endpoints import Like
from tests.support.model_server import ModelServer, Received, Reply
from tests.unit.cli.conftest import Ran, Run

Serve = Callable[[Callable[[Received], Reply]], ModelServer]


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:
        yield lambda routes: stack.enter_context(ModelServer(routes=routes))


SIZE = {"context_tokens": 5_000}
KEYED = ("--key", "sk-of-the-probe", "--overflow-tokens", "6000")
FOUND: dict[str, tuple[Like, tuple[str, ...], dict[str, Any]]] = {
    "llama.cpp": (
        endpoints.LLAMA_CPP, (), {**SIZE, "bounds": False, "overflow": "type", "counter": "input-tokens"},
    ),
    "Ollama": (
        endpoints.OLLAMA, (), {**SIZE, "parallel": False, "overflow": "silent", "reasoning_field": "reasoning"},
    ),
    "vLLM": (
        endpoints.VLLM, (), {**SIZE, "null_content": True, "overflow": "text", "counter": "tokenize"},
    ),
    "OpenAI": (endpoints.OPENAI, KEYED, {**SIZE, "limit_field": "max_completion_tokens"}),
    "small": (
        endpoints.SMALL,
        (),
        {
            **SIZE, "calls": "json-schema", "parallel": False, "alternate": True, "stream": False,
            "overflow": "text", "overflow_words": "My ears are full after",
        },
    ),
    "llama-cpp-python": (
        endpoints.LLAMA_CPP_PYTHON, (), {"calls": "json-schema", "parallel": False, "json_form": "json_object"},
    ),
    "odd": (Like(stream_options=False, counter="tokenize", counts_wrong=True), (), {"stream_usage": False}),
}  # fmt: skip


@pytest.mark.parametrize("kind", FOUND)
def test_probe_finds_the_profile_of_each_endpoint(run: Run, serve: Serve, tmp_path: Path, kind: str) -> None:
    like, words, expected = FOUND[kind]
    server = serve(like)
    ran = run("models", "probe", server.url, *words)
    assert (ran.code, ran.err) == (0, "")
    found = read(tomllib.loads(ran.out), "stdout")
    assert found == Profile(**{"name": found.name, "stream": True, **expected})
    file = tmp_path / "probed.toml"
    file.write_text(ran.out)
    assert find(str(file)) == found
    assert f"ANCHORWATCH_MODEL_NAME={like.model}" in ran.out
    assert "sk-of-the-probe" not in ran.out
    assert len(server.requests) <= 24


def test_programs_get_json(run: Run, serve: Serve) -> None:
    ran = run("models", "probe", serve(endpoints.VLLM).url, "--json")
    report = json.loads(ran.out)
    assert report["profile"] == {**Profile().model_dump(), "name": report["profile"]["name"], "null_content": True,
                               "context_tokens": 5_000, "overflow": "text", "counter": "tokenize", "stream": True}  # fmt: skip
    assert report["problem"] == ""
    assert report["findings"]["tool calls"] == "native"


def test_model_that_cannot_call_tools_is_reported(run: Run, serve: Serve) -> None:
    ran = run("models", "probe", serve(endpoints.MUTE).url)
    assert ran.code == 1
    assert "calls tools neither natively nor as JSON" in ran.err
    assert "PROBLEM" in ran.out


def test_api_below_the_root_is_found(run: Run, serve: Serve) -> None:
    server = serve(endpoints.VLLM)
    ran = run("models", "probe", server.url.removesuffix("/v1"))
    assert ran.code == 0
    assert f"ANCHORWATCH_MODEL_URL={server.url}" in ran.out


def test_settings_key_goes_only_to_the_settings_endpoint(
    run: Run, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(endpoints.OPENAI)
    monkeypatch.setenv("ANCHORWATCH_MODEL_KEY", "sk-of-the-probe")
    assert run("models", "probe", server.url).code == 5
    assert all("authorization" not in each.headers for each in server.requests)
    monkeypatch.setenv("ANCHORWATCH_MODEL_URL", server.url)
    assert run("models", "probe", server.url).code == 0


def page(_: Received) -> Reply:
    return said.html()


def two(received: Received) -> Reply:
    del received
    return said.raw(json.dumps({"data": [{"id": "a"}, {"id": "b"}]}))


def mute(received: Received) -> Reply:
    return said.silent() if received.json else two(received)


@pytest.mark.parametrize(
    ("routes", "words", "code", "why"),
    [
        (endpoints.OPENAI, (), 5, "--key"),
        (endpoints.OPENAI, ("--key", "wrong"), 5, "Incorrect API key"),
        (endpoints.VLLM, ("--model", "other"), 4, "no such model"),
        (page, (), 4, "a web page"),
        (page, ("--model", "x"), 4, "a web page"),
        (lambda _: said.raw("hello"), (), 4, "no JSON"),
        (two, (), 2, "choose one with --model"),
        (lambda _: said.raw("", 500), (), 4, "500"),
        (lambda _: said.raw("{", 200), (), 4, "no JSON"),
        (mute, ("--model", "a", "--timeout", "0.3"), 3, "within 0.3 s"),
    ],
)  # fmt: skip
def test_unprobeable_endpoint_is_reported_in_one_line(
    run: Run, serve: Serve, routes: Any, words: tuple[str, ...], code: int, why: str
) -> None:
    assert is_one_line(ran := run("models", "probe", serve(routes).url, *words))
    assert ran.code == code
    assert why in ran.err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("ftp://127.0.0.1",), 2),
        (("http://[::1",), 2),
        (("http://me:secret@127.0.0.1/v1",), 2),
        (("http://127.0.0.1:1/v1",), 3),
        (("http://127.0.0.1:1/v1", "--key", "a b"), 2),
        (("http://127.0.0.1:1/v1", "--key", "a", "--key-file", "b"), 2),
        (("http://127.0.0.1:1/v1", "--key-file", "missing"), 2),
        (("http://127.0.0.1:1/v1", "--timeout", "0"), 2),
        ((), 2),
    ],
)
def test_invalid_probe_target_is_reported_in_one_line(run: Run, words: tuple[str, ...], code: int) -> None:
    ran = run("models", "probe", *words)
    assert ran.code == code
    assert is_one_line(ran)
    assert "secret" not in ran.err


def is_one_line(ran: Ran) -> bool:
    return ran.out == "" and ran.err.startswith("anchorwatch: ") and ran.err.count("\n") == 1
