"""Which model decides for an agent; what is missing is said with its way out."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.errors import BadSettings
from anchorwatch.core.facts import Observation
from anchorwatch.models.openai import OpenAIModel
from anchorwatch.models.port import Measures, Model, ModelRequest, ProposedCall, Situation, StepDecision
from anchorwatch.models.registry import build
from anchorwatch.settings import Settings
from pydantic import SecretStr

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
REQUEST = ModelRequest(({"role": "user", "content": "hello world"},), (), SITUATION)


class Launches:
    """A pack whose rules always launch."""

    def rules(self, situation: Situation) -> StepDecision:
        return StepDecision(calls=(ProposedCall("launch", {"run": situation.run_id}),))


def agent(model: str = "default") -> AgentSpec:
    return AgentSpec(name="keeper", pack="fleet", model=model)


def settings(**changes: Any) -> Settings:
    return Settings(
        **{"model": "openai", "model_name": "gpt-4o", "model_url": "http://127.0.0.1:9/v1", **changes}
    )


async def test_rules_decide_by_the_pack_and_count_like_any_other() -> None:
    model: Model = build(settings(model="rules"), agent(), Launches())
    reply = await model.complete(REQUEST, 1.0)
    assert (model.name, model.is_llm) == ("rules", False)
    assert reply.decision.calls == (ProposedCall("launch", {"run": 1}),)
    assert model.count(REQUEST) > 2
    await model.close()


@pytest.mark.parametrize(("of_agent", "of_settings", "is_llm"), [
    ("default", "rules", False),
    ("default", "openai", True),
    ("rules", "openai", False),
    ("openai", "rules", True),
])  # fmt: skip
async def test_agent_value_overrides_the_settings(of_agent: str, of_settings: str, *, is_llm: bool) -> None:
    model = build(settings(model=of_settings), agent(of_agent), Launches())
    assert model.is_llm is is_llm
    await model.close()


async def test_llm_has_the_requested_name() -> None:
    model = build(settings(), agent(), Launches())
    assert isinstance(model, OpenAIModel)
    assert (model.name, model.counter.estimate) == ("gpt-4o", False)
    await model.close()


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"model_name": " "}, "ANCHORWATCH_MODEL_NAME"),
        ({"model_url": ""}, "ANCHORWATCH_MODEL_URL"),
        ({"model_url": "127.0.0.1:8000/v1"}, "ANCHORWATCH_MODEL_URL"),
        ({"model_url": "http://"}, "ANCHORWATCH_MODEL_URL"),
        ({"model_url": "http://[::1/v1"}, "ANCHORWATCH_MODEL_URL"),
        ({"model_url": "http://host:port/v1"}, "ANCHORWATCH_MODEL_URL"),
        ({"model_url": f"http://me:{KEY}@127.0.0.1/v1"}, "ANCHORWATCH_MODEL_KEY"),
        ({"model_url": f"http://127.0.0.1/v1?key={KEY}"}, "ANCHORWATCH_MODEL_KEY"),
        ({"model_key": SecretStr(f"{KEY} é")}, "ANCHORWATCH_MODEL_KEY"),
        ({"model_key": SecretStr(f"{KEY}\r\nX-Other: 1")}, "ANCHORWATCH_MODEL_KEY"),
    ],
)
def test_setting_that_cannot_work_is_named_and_no_secret_is(changes: dict[str, Any], setting: str) -> None:
    with pytest.raises(BadSettings) as raised:
        build(settings(**changes), agent(), Launches())
    assert setting in raised.value.hint
    assert KEY not in str(raised.value)


def test_profile_is_found_and_an_unknown_one_is_reported() -> None:
    with pytest.raises(BadSettings, match="unknown profile 'vllm'"):
        build(settings(model_profile="vllm"), agent(), Launches())


def test_budget_beyond_the_profile_is_reported_with_one_to_use(tmp_path: Path) -> None:
    profile = tmp_path / "small.toml"
    profile.write_text("context_tokens = 8192\n")
    with pytest.raises(BadSettings, match="8192") as raised:
        build(settings(model_profile=str(profile)), agent(), Launches())
    assert "ANCHORWATCH_CONTEXT_TOKENS_MAX=4096" in raised.value.hint


async def test_endpoint_with_its_own_counter_is_used(tmp_path: Path) -> None:
    profile = tmp_path / "own.toml"
    profile.write_text('counter = "tokenize"\n')
    model = build(settings(model_profile=str(profile)), agent(), Launches())
    assert isinstance(model, Measures)
    await model.close()


def test_unknown_model_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadSettings, match="rules"):
        build(settings(), agent("gpt-4o"), Launches())


def test_rules_do_not_import_the_sdk() -> None:
    program = (
        "import sys\n"
        "from anchorwatch.models import registry, rules, tokens\n"
        "assert not {'openai', 'httpx2', 'tiktoken'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=60)
