"""Further models: each is the settings with changes, and what cannot be used is named with its way out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.errors import BadSettings
from anchorwatch.models import catalog
from anchorwatch.models.registry import build, check
from anchorwatch.settings import Settings
from anchorwatch_fleet.pack import FleetPack
from pydantic import SecretStr

TWO = """
[small]
model_url = "http://127.0.0.1:8080/v1"
model_name = "qwen3:8b"
context_tokens_max = 8000
price_prompt = 0.5

[again]
model_name = "gpt-4o-mini"
"""


def settings(tmp_path: Path, text: str, **changes: Any) -> Settings:
    path = tmp_path / "models.toml"
    path.write_text(text)
    given = {"model": "openai", "model_name": "gpt-4o", "model_key": SecretStr("sk-of-the-first"), **changes}
    return Settings(models=path, **given)


def agent(**changes: Any) -> AgentSpec:
    return AgentSpec(name="keeper", pack="fleet", **changes)


def test_table_overrides_the_settings(tmp_path: Path) -> None:
    all_of_it = settings(tmp_path, TWO, price_completion=2.0)
    assert catalog.names(all_of_it) == ["again", "small"]
    small = catalog.effective(all_of_it, "small")
    assert (small.model_name, small.context_tokens_max) == ("qwen3:8b", 8_000)
    assert (small.price_prompt, small.price_completion) == (0.5, 2.0)
    assert (catalog.bound(all_of_it, "small"), catalog.bound(all_of_it, "again")) == (8_000, None)
    assert catalog.effective(all_of_it, "openai") is all_of_it


def test_key_goes_only_to_the_endpoint_it_was_given_for(tmp_path: Path) -> None:
    all_of_it = settings(tmp_path, TWO)
    assert catalog.effective(all_of_it, "small").model_key is None
    again = catalog.effective(all_of_it, "again").model_key
    assert again is not None
    assert again.get_secret_value() == "sk-of-the-first"
    (tmp_path / "key").write_text("sk-of-the-second\n")
    own = settings(
        tmp_path, f'{TWO}\n[third]\nmodel_url = "http://h/v1"\nmodel_key_file = "{tmp_path}/key"\n'
    )
    third = catalog.effective(own, "third").model_key
    assert third is not None
    assert third.get_secret_value() == "sk-of-the-second"


def test_environment_key_goes_to_no_other_endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "models.toml"
    path.write_text(TWO)
    monkeypatch.setenv("ANCHORWATCH_MODEL_KEY", "sk-of-the-first")
    monkeypatch.setenv("ANCHORWATCH_MODEL_NAME", "gpt-4o")
    monkeypatch.setenv("ANCHORWATCH_CONTEXT_TOKENS_MAX", "9000")
    all_of_it = Settings(models=path)
    assert all_of_it.model_key is not None
    assert catalog.effective(all_of_it, "small").model_key is None
    again = catalog.effective(all_of_it, "again")
    assert again.model_key is not None
    assert (again.model_name, again.context_tokens_max) == ("gpt-4o-mini", 9_000)


async def test_agent_model_may_be_any_configured_model(tmp_path: Path) -> None:
    all_of_it = settings(tmp_path, TWO)
    model = build(all_of_it, agent(model="small"), FleetPack())
    assert model.name == "qwen3:8b"
    await model.close()
    check(all_of_it)


@pytest.mark.parametrize(
    ("of_agent", "of_settings", "asked"),
    [
        ({}, (), ("openai",)),
        ({}, ("small", "rules"), ("openai", "small", "rules")),
        ({"fallbacks": ("again",)}, ("small",), ("openai", "again")),
        ({"fallbacks": ()}, ("small",), ("openai",)),
        ({"model": "small"}, ("again",), ("small", "rules")),
        ({"model": "small", "fallbacks": ()}, ("again",), ("small",)),
        ({"model": "small", "fallbacks": ("small", "rules", "rules")}, (), ("small", "rules")),
    ],
)
def test_agent_models_are_tried_in_order(
    tmp_path: Path, of_agent: dict[str, Any], of_settings: tuple[str, ...], asked: tuple[str, ...]
) -> None:
    all_of_it = settings(tmp_path, TWO, model_fallbacks=of_settings)
    assert catalog.in_turn(all_of_it, agent(**of_agent)) == asked


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[small\n", "cannot be read"),
        ("small = 3\n", "small is not a table"),
        ("[rules]\n", "'rules' is not a valid model name"),
        ('["Big One"]\n', "'Big One' is not a valid model name"),
        ("[small]\nmodel_names = 'x'\n", "unknown field 'model_names'"),
        ("[small]\nport = 1\n", "unknown field 'port'"),
        ("[small]\ncontext_tokens_max = 'many'\n", "context_tokens_max must be a whole number"),
        ("[small]\nmodel_key_file = '/nowhere/key'\n", "model_key_file /nowhere/key cannot be read"),
        ("[other]\n", "unknown model 'small'"),
    ],
)
def test_unusable_entry_is_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(BadSettings, match=says.replace("[", r"\[")) as raised:
        catalog.effective(settings(tmp_path, text), "small")
    assert "sk-of-the-first" not in str(raised.value)
    with pytest.raises(BadSettings):
        check(settings(tmp_path, text, model_fallbacks=("small",)))
