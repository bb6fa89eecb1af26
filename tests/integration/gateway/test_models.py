"""The models that agents ask, over HTTP, from a planner that asks them."""

from __future__ import annotations

from pathlib import Path

from tests.integration.gateway.conftest import AGENT, House

FILE = """
[small]
model_url = "http://127.0.0.1:9/v1"
model_name = "qwen3:8b"
model_profile = "json-schema"
price_prompt = 0.5
"""


async def test_models_are_listed_without_their_keys(house: House, tmp_path: Path) -> None:
    answer = await house.http.get("/api/models")
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable"), "no planner is up"
    path = tmp_path / "models.toml"
    path.write_text(f'{FILE}model_key = "sk-of-nobody-else"\n')
    await house.services.stop("gateway-1")
    await house.services.start("planner", models=path, model_fallbacks=("small",))
    await house.open_gateway()
    answer = await house.http.get("/api/models")
    assert answer.status_code == 200, answer.text
    rows = {row["name"]: row for row in answer.json()["data"]}
    assert list(rows) == ["rules", "small"]
    assert (rows["rules"]["is_llm"], rows["rules"]["agents"]) == (False, [AGENT["name"]])
    small = rows["small"]
    assert (small["model"], small["profile"]) == ("qwen3:8b", "json-schema")
    assert small["counter"] == "o200k_base × 1.4, an estimate"
    assert small["prices"] == {"prompt": 0.5, "completion": 0.0}
    assert (small["last_report"], small["failures"], small["problem"]) == (None, 0, "")
    assert "sk-of-nobody-else" not in answer.text
