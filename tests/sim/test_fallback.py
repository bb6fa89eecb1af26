"""A list of models, in the planner's real code: the next one answers where the first does not, and a dead one is let rest."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from anchorwatch.cli.doctor_services import models as examine
from anchorwatch.core.agents import RULES, AgentSpec
from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.core.names import SessionRef
from anchorwatch.models.health import REST_MS
from anchorwatch.models.port import (
    ContextOverflow,
    Model,
    ModelRefused,
    ModelReply,
    ModelRequest,
    ModelUnavailable,
    OnRetry,
    StepDecision,
    ignore,
)
from anchorwatch.models.rules import RulesModel
from anchorwatch.models.tokens import Counter
from anchorwatch.models.usage import Usage
from anchorwatch.testing.bus.loop import run as run_virtual
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.testing.process import Run
from anchorwatch_planner import main as planner

from tests.sim.test_planner import agent, once
from tests.sim.test_showing import ask

FILE = """
[first]
model_name = "m-first"
price_prompt = 1.0
[second]
model_url = "http://second.test/v1"
model_name = "m-second"
price_prompt = 2.0
price_completion = 4.0
"""


@dataclass
class Scripted:
    """A model that fails as it is told, and else answers."""

    name: str
    fault: AnchorWatchError | None = None
    asked: list[int] = field(default_factory=list)
    is_llm: bool = True

    def count(self, request: ModelRequest) -> int:
        return Counter().sent(request)

    async def complete(
        self, request: ModelRequest, deadline_s: float, on_retry: OnRetry = ignore
    ) -> ModelReply:
        del deadline_s, on_retry
        self.asked.append(self.count(request))
        if self.fault is not None:
            raise self.fault
        return ModelReply(StepDecision(f"{self.name} looked"), Usage(self.asked[-1], 10), model=self.name)

    async def close(self) -> None: ...


@dataclass
class Scene:
    mesh: SimMesh
    ref: SessionRef
    models: dict[str, Scripted]
    plan: Run

    async def steps(self) -> list[Mapping[str, Any]]:
        """What is recorded of each step, in order."""
        bodies = [anchor["record"]["body"] for anchor in await self.mesh.anchors(self.ref)]
        return [body["step"] for body in bodies if "step" in body]


def playing(
    tmp_path: Path, body: Callable[[Scene], Coroutine[Any, Any, None]], file: str = FILE, **changes: Any
) -> None:
    path = tmp_path / "models.toml"
    path.write_text(file)
    models = {name: Scripted(f"m-{name}") for name in ("first", "second")}

    def build(settings: object, spec: AgentSpec, pack: Any) -> Model:
        del settings
        return RulesModel(pack.rules) if spec.model == RULES else models[spec.model]

    async def main() -> None:
        mesh = SimMesh(seed=1, models=path)
        try:
            plan = partial(planner.run, build=build)
            await mesh.open(("planner", plan))
            given = {"model": "first", "fallbacks": ("second",), "heartbeat_s": 10, **changes}
            ref = await mesh.session("s", agent(tmp_path, once(), **given))
            await body(Scene(mesh, ref, models, plan))
        finally:
            await mesh.close()

    run_virtual(main(), 1)


def test_fallback_answers_and_the_step_names_every_model_tried(tmp_path: Path) -> None:
    async def body(scene: Scene) -> None:
        scene.models["first"].fault = ModelUnavailable("it is away")
        anchor = await scene.mesh.until_rest(scene.ref, 1)
        assert anchor.last_run_outcome == "no_action"
        assert anchor.prompt is not None
        assert anchor.prompt.model == "m-second"
        (step,) = await scene.steps()
        assert step["text"] == "m-second looked"
        assert step["context"]["model"] == "second"
        assert step["context"]["in_vain"] == [["first", "model_unavailable"]]
        tokens = scene.models["second"].asked[0]
        usage = {name: step["usage"][name] for name in ("prompt", "completion", "cost_micros")}
        assert usage == {"prompt": tokens, "completion": 10, "cost_micros": 2 * tokens + 40}
        spent = (await scene.mesh.sessions.load(scene.ref, 0)).spent.ever
        assert (spent.all, spent.micros) == (tokens + 10, 2 * tokens + 40), "the first one used nothing"
        replayed = (await ask(scene.mesh, "replay", turn="1"))["result"]
        assert replayed["same"] is True

    playing(tmp_path, body)


def test_dead_primary_rests_and_returns_when_it_is_well(tmp_path: Path) -> None:
    async def body(scene: Scene) -> None:
        first, second = scene.models["first"], scene.models["second"]
        first.fault = ModelUnavailable("it is away")
        runs = 30
        await scene.mesh.until_rest(scene.ref, runs, within_s=1_000)
        assert len(second.asked) >= runs
        assert 2 <= len(first.asked) <= 6, "it was not asked each time"
        first.fault = None
        before = len(first.asked)

        async def well() -> bool:
            return len(first.asked) > before + 3

        await scene.mesh.until(well, within_s=1_500)
        assert [step["text"] for step in await scene.steps()][-1] == "m-first looked"

    playing(tmp_path, body)


def test_refusing_model_is_skipped_at_once(tmp_path: Path) -> None:
    async def body(scene: Scene) -> None:
        scene.models["first"].fault = ModelRefused("the key is not accepted", lasting=True)
        await scene.mesh.until_rest(scene.ref, REST_MS // 20_000, within_s=100)
        assert len(scene.models["first"].asked) == 1
        assert len(scene.models["second"].asked) >= 1

    playing(tmp_path, body)


def test_refusal_of_one_request_does_not_exclude_the_model(tmp_path: Path) -> None:
    async def body(scene: Scene) -> None:
        first = scene.models["first"]
        first.fault = ModelRefused("its content filter refuses this")
        await scene.mesh.until_rest(scene.ref, 1)
        first.fault = None
        await scene.mesh.until_rest(scene.ref, 2)
        assert [step["text"] for step in await scene.steps()] == ["m-second looked", "m-first looked"]

    playing(tmp_path, body)


def test_model_keeps_its_own_bound_and_a_small_one_is_not_dead(tmp_path: Path) -> None:
    small = FILE.replace("price_prompt = 1.0", "context_tokens_max = 256")

    async def body(scene: Scene) -> None:
        await scene.mesh.until_rest(scene.ref, 3, within_s=100)
        assert scene.models["first"].asked == [], "no request above its bound is sent to it"
        for step in await scene.steps():
            assert step["context"]["in_vain"] == [["first", "over_budget"]], (
                "and each turn finds that out anew"
            )
        scene.models["second"].fault = ContextOverflow("too long", tokens=9_999)
        anchor = await scene.mesh.until_rest(scene.ref, 6, within_s=300)
        assert anchor.last_run_outcome == "over_budget"

    # Rules decide for a model that is away, and not for a request that is too large.
    playing(tmp_path, body, file=small, fallbacks=("second", "rules"))


def test_turn_ends_when_no_model_answers_and_all_are_retried(tmp_path: Path) -> None:
    async def body(scene: Scene) -> None:
        for model in scene.models.values():
            model.fault = ModelUnavailable(f"{model.name} is away")
        anchor = await scene.mesh.until_rest(scene.ref, 6, within_s=300)
        assert anchor.last_run_outcome == "failed"
        assert "is away; before it, " in anchor.last_run_reason
        for model in scene.models.values():
            assert len(model.asked) >= 6, "with nothing better left, a dead one is asked all the same"
            model.fault = None
        anchor = await scene.mesh.until_rest(scene.ref, 9, within_s=300)
        assert anchor.last_run_outcome == "no_action"

    playing(tmp_path, body)


def test_pack_rules_can_be_the_last_fallback(tmp_path: Path) -> None:
    async def body(scene: Scene) -> None:
        for name in ("first", "second"):
            scene.models[name].fault = ModelUnavailable("it is away")
        anchor = await scene.mesh.until_rest(scene.ref, 2, within_s=100)
        assert anchor.last_run_outcome == "no_action"
        assert [step["prompt"]["model"] for step in await scene.steps()] == ["rules", "rules"]

    playing(tmp_path, body, fallbacks=("second", "rules"))


def test_models_in_use_are_listed_with_their_last_answers(tmp_path: Path) -> None:
    async def body(scene: Scene) -> None:
        scene.models["first"].fault = ModelRefused("the key is not accepted", lasting=True)
        await scene.mesh.until_rest(scene.ref, 2, within_s=100)
        await scene.mesh.processes["planner-1"].kill()
        await scene.mesh.add(("planner", scene.plan))
        rows = {row["name"]: row for row in (await ask(scene.mesh, "models"))["result"]}
        assert list(rows) == ["first", "second"]
        first, second = rows["first"], rows["second"]
        assert first["fault"] == {"code": "model_refused", "why": "the key is not accepted"}
        assert (first["failures"], first["last_report"]) == (1, None)
        assert first["asked_again_at"] > first["failed_at"]
        assert (second["endpoint"], second["model"]) == ("http://second.test/v1", "m-second")
        assert second["last_report"]["reported"] == scene.models["second"].asked[0]
        assert second["correction"]["reports"] >= 1
        assert second["counter"] == "o200k_base × 1.4, an estimate"
        assert second["prices"] == {"prompt": 2.0, "completion": 4.0}
        assert second["agents"] == ["keeper"]

    playing(tmp_path, body)


def test_agent_with_unusable_models_is_listed_with_the_reason(tmp_path: Path) -> None:
    async def body(scene: Scene) -> None:
        (tmp_path / "models.toml").write_text("[first]\nmodel_name = 'm-first'\n")
        (row,) = (await ask(scene.mesh, "models"))["result"]
        assert row["agents"] == ["keeper"]
        assert "unknown model 'second'" in row["problem"]

    playing(tmp_path, body)


def test_doctor_names_the_model_that_does_not_answer(tmp_path: Path) -> None:
    async def body(scene: Scene) -> None:
        await scene.mesh.until_rest(scene.ref, 1)
        assert (await examine(scene.mesh.bus, "default")).state == "passed"
        scene.models["first"].fault = ModelUnavailable("it is away")
        await scene.mesh.until_rest(scene.ref, 3, within_s=120)
        check = await examine(scene.mesh.bus, "default")
        assert check.state == "failed"
        assert "first at " in check.detail
        assert "it is away" in check.detail
        assert "second" not in check.detail

    playing(tmp_path, body)
