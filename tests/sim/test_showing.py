"""What a model would be shown, and what it was shown: the planner's answers, in its real code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anchorwatch.core.agents import Limits
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.topology.subjects import RPC_PLANNER

from tests.sim.test_compaction import BUDGET, ORDERS, Scene, plain_words, playing, spec, talk
from tests.sim.test_planner import agent, mesh_test, obedient, once
from tests.support.openapi import check_value

DESCRIBED_AS = {"context": "Context", "replay": "Replayed"}
"""The gateway passes these answers on, so its OpenAPI document describes them."""


async def ask(mesh: SimMesh, verb: str, **params: str) -> Mapping[str, Any]:
    payload = json.dumps({"workspace": "default", "session": "s", **params}).encode()
    answer: dict[str, Any] = json.loads(await mesh.bus.request(RPC_PLANNER.at(verb=verb), payload, 10.0))
    if "result" in answer and verb in DESCRIBED_AS:
        check_value(DESCRIBED_AS[verb], answer["result"])
    return answer


def test_context_is_shown_in_blocks_whose_sizes_add_up(
    tmp_path: Path,
) -> None:
    async def body(scene: Scene) -> None:
        await talk(scene)
        shown = (await ask(scene.mesh, "context"))["result"]
        blocks = {block["name"]: block for block in shown["blocks"]}
        assert (
            sum(block["tokens"] for block in shown["blocks"]) == shown["tokens"] <= shown["budget"] == BUDGET
        )
        assert ORDERS in blocks["system"]["text"]
        assert "summarised turns" in blocks["summary"]["left_out"]
        assert f"[run {shown['run_id']}]" in blocks["wakes"]["text"]
        assert "TASK:" in blocks["observation and task"]["text"]
        before = await scene.mesh.anchor(scene.ref)
        await ask(scene.mesh, "context")
        assert await scene.mesh.anchor(scene.ref) == before, "to look changes nothing"

    playing(spec(tmp_path), plain_words, body)


def test_compacted_talk_reproduces_every_step_byte_for_byte(
    tmp_path: Path,
) -> None:
    async def body(scene: Scene) -> None:
        await talk(scene)
        for run in range(1, 25):
            replayed = (await ask(scene.mesh, "replay", turn=str(run)))["result"]
            assert replayed["same"] is True, replayed
        assert len(await scene.summaries()) >= 3

    playing(spec(tmp_path), plain_words, body)


def test_turn_with_calls_replays_on_another_model_without_effect(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", ("executor", obedient))
        ref = await mesh.session("s", agent(tmp_path, once("fire", "look"), heartbeat_s=60))
        anchor = await mesh.until_rest(ref, 2, within_s=200)
        before = await mesh.records(ref)
        replayed = (await ask(mesh, "replay", turn="1", model="rules"))["result"]
        assert [step["same"] for step in replayed["steps"]] == [True, True]
        first, last = replayed["steps"]
        assert [call["tool"] for call in first["decided"]["calls"]] == ["fire", "look"]
        assert first["other"]["calls"] == first["decided"]["calls"]
        assert (last["decided"]["text"], last["other"]["text"]) == ("done", "done")
        assert await mesh.records(ref) == before, "nothing is written and nothing is run"
        assert anchor.run_count >= 2

    mesh_test(1, body)


def test_unknown_turn_or_method_is_reported(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner")
        assert (await ask(mesh, "context"))["error"]["code"] == "not_found"
        spec = agent(tmp_path, once(), heartbeat_s=3600, limits=Limits(context_tokens_max=256))
        ref = await mesh.session("s", spec)
        await mesh.until_rest(ref, 1)
        assert "no turn '9'" in (await ask(mesh, "replay", turn="9"))["error"]["message"]
        assert (await ask(mesh, "replay"))["error"]["code"] == "bad_input"
        assert (await ask(mesh, "sing"))["error"]["code"] == "not_found"
        shown = (await ask(mesh, "context"))["result"]
        assert shown["tokens"] > shown["budget"]
        assert "over_budget" in shown["first"]
        assert "called no model" in (await ask(mesh, "replay", turn="1"))["error"]["message"]

    mesh_test(1, body)
