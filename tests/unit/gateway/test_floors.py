"""What is asked of an agent's models before it is defined."""

from __future__ import annotations

from typing import Any

import pytest
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.errors import BadInput
from anchorwatch.settings import Settings
from anchorwatch_gateway.agents import check_prompts_fit


@pytest.mark.parametrize("changes", [{"model": "gpt-x"}, {"fallbacks": ("rules", "gpt-x")}])
async def test_unknown_model_is_refused_with_the_known_ones(changes: dict[str, Any]) -> None:
    agent = AgentSpec(name="keeper", pack="fleet", **changes)
    with pytest.raises(BadInput, match=r"unknown model 'gpt-x'.*default, rules, openai"):
        await check_prompts_fit(Settings(), agent)


async def test_prompt_must_fit_the_smallest_fallback(tmp_path: Any) -> None:
    path = tmp_path / "models.toml"
    path.write_text("[small]\nmodel_name = 'm'\ncontext_tokens_max = 256\n")
    agent = AgentSpec(name="keeper", pack="fleet", model="rules", fallbacks=("small",))
    with pytest.raises(BadInput, match="of the 256 tokens of a request"):
        await check_prompts_fit(Settings(models=path), agent)
    await check_prompts_fit(Settings(models=path), agent.model_copy(update={"fallbacks": ()}))
