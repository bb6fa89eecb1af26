"""The incident: 38,000 tokens by the backend's count against a budget of 30,000, cycle after cycle. It cannot happen.

A planner on a real server, and an endpoint over HTTP that counts otherwise than we do and reports what it counted.
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.bus.port import Bus
from anchorwatch.context.summarise import ORDER
from anchorwatch.core.agents import Limits
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.names import SessionRef
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import Create
from anchorwatch.core.session.decide import decide
from anchorwatch.journal.commit import Committer
from anchorwatch.journal.inputs import accept
from anchorwatch.journal.mapping import input_body
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.models.tokens import CL100K, Counter, counter_for
from anchorwatch.packs import registry
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.testing.live import Follower
from anchorwatch.topology.streams import journal_stream

from tests.support.in_process import Services, services_on
from tests.support.model_server import Json, ModelServer, Reply, error, raw, text
from tests.support.nats_server import NatsServer
from tests.support.packs import BENCH, bench_agent
from tests.support.sessions import now_ms
from tests.support.waiting import eventually

BUDGET = 3_000
"""A tenth of the incident's: what counts is the ratio, and a tenth of the text is counted in a tenth of the time."""
TURNS = 12
WORDS = "the worker of machine seven says that its queue is long and its disk is nearly full, "


REF = SessionRef("default", "fleet")


@dataclass
class Backend:
    """Counts ``per_token`` for each that `counter` does, and reports it; asked before by its own counter, it says the same."""

    counter: Counter
    per_token: float
    sizes: list[int] = field(default_factory=list)
    sizes_of_steps: list[int] = field(default_factory=list)
    measured: int = 0

    def count(self, asked: Json) -> int:
        return math.floor(self.counter.request(asked["messages"], asked.get("tools", ())) * self.per_token)

    def __call__(self, asked: Json) -> Reply:
        tokens = self.count(asked)
        if "max_tokens" not in asked:
            self.measured += 1
            return raw(f'{{"object": "input_tokens", "input_tokens": {tokens}}}')
        self.sizes.append(tokens)
        if not str(asked["messages"][0]["content"]).startswith(ORDER[:40]):
            self.sizes_of_steps.append(tokens)
        if tokens > BUDGET:
            return error(400, "the request exceeds the available context size", "exceed_context_size_error")
        usage = {"prompt_tokens": tokens, "completion_tokens": 9, "total_tokens": tokens + 9}
        return text("I looked, and nothing needs to be done. " * 4, usage=usage)


@pytest.fixture(autouse=True)
def bench() -> Iterator[None]:
    registry.register(BENCH)
    yield
    registry._known.pop(BENCH.name)  # noqa: SLF001 - no other test may find it


@pytest.fixture
async def services(server: NatsServer, bus: Bus, tmp_path: Path) -> AsyncIterator[Services]:
    del bus  # its streams must be there first
    async with services_on(server.url, tmp_path / "data") as made:
        yield made


async def talk(bus: Bus, tmp_path: Path, first: str, words: Sequence[str] = (WORDS,)) -> Anchor:
    """A session in which a person writes in every turn, from the first one on; its anchor after the last turn.

    ``words``: what the messages are made of, in turn.
    """
    directory = await AgentDirectory.open(bus)
    limits = Limits(context_tokens_max=BUDGET)
    agent = await directory.apply("default", bench_agent(tmp_path, limits=limits, heartbeat_s=3_000))
    ref = REF
    committer = Committer(bus, journal_stream())
    journal = SessionJournal(bus, committer, "test")
    created = decide(SessionState(), Create(ref, agent.at_version, (), (), now_ms(), "test"))
    await journal.append(ref, SessionState(), created, now_ms())
    anchor = (await journal.read_anchor(ref))[0]
    for turn in range(1, TURNS + 1):
        body = input_body(
            "message", 0, text=first if turn == 1 else f"turn {turn}: {words[turn % len(words)] * 6}"
        )
        receipt = await accept(committer, ref, f"m{turn}", body, at_ms=now_ms(), writer="test")

        async def answered(sequence: int = receipt.sequence) -> list[Anchor]:
            found = (await journal.read_anchor(ref))[0]
            return [found] if found.status == "idle" and found.inputs_through >= sequence else []

        (anchor,) = await eventually(answered, 30.0)
        if turn > 1:
            assert anchor.last_run_outcome == "no_action", anchor.last_run_reason
    return anchor


async def test_endpoint_counter_is_used_first_and_its_room_is_filled(
    services: Services, bus: Bus, tmp_path: Path
) -> None:
    (tmp_path / "own.toml").write_text('counter = "input-tokens"\n')
    # Less than the estimate for a vocabulary that is not its own, more than that vocabulary's count.
    backend = Backend(Counter(), 1.2)
    with ModelServer(backend) as server:
        settings = {
            **settings_of(server, "some-model-of-others"),
            "model_profile": str(tmp_path / "own.toml"),
        }
        await services.start("planner", **settings)
        anchor = await talk(bus, tmp_path, WORDS * 45)
    assert backend.measured >= TURNS
    assert max(backend.sizes) <= BUDGET
    assert max(backend.sizes) > BUDGET * 0.85, "by the estimate it would be less than that"
    assert anchor.prompt is not None
    assert anchor.prompt.tokens == backend.sizes[-1], "what was compared is what the endpoint counts"


@dataclass
class Small:
    """Takes ``context`` tokens and says so, as llama.cpp does; it counts as we do."""

    context: int
    counter: Counter = field(default_factory=Counter)
    refused: int = 0
    answered: int = 0

    def __call__(self, asked: Json) -> Reply:
        tokens = self.counter.request(asked["messages"], asked.get("tools", ()))
        if tokens >= self.context:
            self.refused += 1
            fault = {"code": 400, "message": "too large", "type": "exceed_context_size_error"}
            sizes = {"n_prompt_tokens": tokens, "n_ctx": self.context}
            return raw(json.dumps({"error": {**fault, **sizes}}), 400)
        self.answered += 1
        usage = {"prompt_tokens": tokens, "completion_tokens": 9, "total_tokens": tokens + 9}
        return text("I looked, and nothing needs to be done. " * 4, usage=usage)


async def test_endpoint_below_the_budget_does_not_paralyse_a_session(
    services: Services, bus: Bus, tmp_path: Path
) -> None:
    backend = Small(BUDGET * 4 // 5)
    with ModelServer(backend) as server:
        await services.start("planner", **settings_of(server, "gpt-4o"))
        await talk(bus, tmp_path, "hello")
    assert backend.answered >= TURNS
    assert backend.refused == 1, "and it is not found out again in each turn"


def settings_of(server: ModelServer, model: str) -> dict[str, Any]:
    return {
        "model": "openai",
        "model_url": server.url,
        "model_name": model,
        "debounce_p0_s": 0.0,
        "debounce_p1_s": 0.0,
    }


@pytest.mark.parametrize(
    ("model", "per_token", "first"),
    [
        ("gpt-4o", 38 / 30, "hello"),
        ("some-model-of-others", 1.25, "hello"),
        # By our count the very first request would fit, by theirs it would not.
        ("gpt-4o", 38 / 30, WORDS * 75),
        ("some-model-of-others", 1.25, WORDS * 45),
    ],
    ids=["small", "small-estimated", "large", "large-estimated"],
)
async def test_budget_holds_by_the_own_count_of_a_stricter_backend(
    services: Services, bus: Bus, tmp_path: Path, model: str, per_token: float, first: str
) -> None:
    backend = Backend(counter_for(model), per_token)
    with ModelServer(backend) as server:
        await services.start("planner", **settings_of(server, model))
        anchor = await talk(bus, tmp_path, first)
    assert len(backend.sizes) >= TURNS - 1
    assert max(backend.sizes) <= BUDGET
    assert max(backend.sizes) > BUDGET * 0.7, "and what there is room for is used"
    assert anchor.prompt is not None
    assert anchor.prompt.tokens >= backend.sizes[-1], "what was compared is no less than what was reported"
    compared = [each.proof.tokens for each in (await Follower(bus, REF).history()).prompts if each.proof]
    sent = backend.sizes_of_steps
    assert len(compared) == len(sent)
    assert all(ours >= theirs for ours, theirs in zip(compared, sent, strict=True))


async def test_finely_split_script_costs_a_refusal_and_is_then_counted(
    services: Services, bus: Bus, tmp_path: Path
) -> None:
    backend = Backend(Counter(CL100K), 1.0)
    with ModelServer(backend) as server:
        await services.start("planner", **settings_of(server, "some-model-of-others"))
        await talk(bus, tmp_path, "hello", [WORDS, WORDS, "सात नंबर की मशीन का कर्मचारी कहता है "])
    taken = [size for size in backend.sizes if size <= BUDGET]
    assert len(taken) >= TURNS
    assert len(backend.sizes) - len(taken) <= 1
