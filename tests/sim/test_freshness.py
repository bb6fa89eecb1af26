"""A model that is slow, in the planner's real code: what it decided is committed on a sight that is not too old to act on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from anchorwatch.core.facts import Observation
from anchorwatch.core.names import SessionRef
from anchorwatch.core.session.events import CommandDecided
from anchorwatch.models.port import (
    Model,
    ModelReply,
    ModelRequest,
    OnRetry,
    ProposedCall,
    StepDecision,
    ignore,
)
from anchorwatch.models.usage import Usage
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.observations import encode_answer
from anchorwatch.testing.bus.loop import run as run_virtual
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.topology.subjects import RPC_OBSERVE
from anchorwatch_planner import main as planner
from anchorwatch_planner.decision import OBSERVATIONS_MAX

from tests.sim.test_planner import agent, obedient, once
from tests.sim.test_showing import ask

SLOW_S = 150.0
"""More than a tool of the bench allows (120)."""


@dataclass
class World:
    """How things are: a word, which the test changes."""

    word: str = "calm"

    async def observe(self, context: ServiceContext) -> None:
        async def look(subject: str, payload: bytes) -> bytes:
            del subject, payload
            return encode_answer(
                Observation(self.word, {"dead": False}, context.clock.now_ms(), self.word, 60.0)
            )

        await context.bus.subscribe(RPC_OBSERVE.filter(), look)
        context.ready.set()
        await context.stopping.wait()


@dataclass
class Slow:
    """Asks for ``tool`` in its first step, and takes its time to say so; ``meanwhile`` happens in that time."""

    tool: str
    meanwhile: Callable[[], None]
    asked: list[str] = field(default_factory=list)
    name: str = "slow"
    is_llm: bool = True

    def count(self, request: ModelRequest) -> int:
        return 100 + len(request.now)

    async def complete(
        self, request: ModelRequest, deadline_s: float, on_retry: OnRetry = ignore
    ) -> ModelReply:
        del deadline_s, on_retry
        if request.situation.steps:
            return ModelReply(StepDecision("done"), Usage(50, 5))
        self.asked.append(request.situation.observation.text)
        await asyncio.sleep(SLOW_S)
        self.meanwhile()
        return ModelReply(StepDecision("", (ProposedCall(self.tool, {"item": "a"}),)), Usage(100, 10))

    async def close(self) -> None: ...


def playing(
    tmp_path: Path,
    world: World,
    model: Slow,
    body: Callable[[SimMesh, SessionRef], Coroutine[Any, Any, None]],
) -> None:
    def build(settings: object, spec: object, pack: object) -> Model:
        del settings, spec, pack
        return model

    async def main() -> None:
        mesh = SimMesh(seed=1, model_timeout_s=600.0)
        try:
            plan = partial(planner.run, build=build)
            await mesh.open(("planner", plan), ("executor", obedient), ("observer", world.observe))
            ref = await mesh.session("s", agent(tmp_path, once(), heartbeat_s=3_600))
            await mesh.until_rest(ref, 1, within_s=1_000)
            await body(mesh, ref)
        finally:
            await mesh.close()

    run_virtual(main(), 1)


def command(mesh: SimMesh, ref: SessionRef) -> CommandDecided:
    (found,) = mesh.history(ref).commands
    return found.decided


def test_unchanged_facts_keep_the_decision_with_a_newer_reading(tmp_path: Path) -> None:
    world = World()
    model = Slow("fire", lambda: None)

    async def body(mesh: SimMesh, ref: SessionRef) -> None:
        decided = command(mesh, ref)
        assert model.asked == ["calm"], "its decision stands"
        assert decided.observation_digest == "calm"
        age_s = (mesh.server.now_ms() - decided.observation_at_ms) / 1000
        assert age_s < SLOW_S / 2
        assert (await ask(mesh, "replay", turn="1"))["result"]["same"] is True

    playing(tmp_path, world, model, body)


def test_outdated_decision_is_repeated_and_both_answers_are_paid(tmp_path: Path) -> None:
    world = World()

    def once_more() -> None:
        world.word = "storm"

    model = Slow("fire", once_more)

    async def body(mesh: SimMesh, ref: SessionRef) -> None:
        assert model.asked == ["calm", "storm"]
        assert command(mesh, ref).observation_digest == "storm"
        spent = (await mesh.sessions.load(ref, 0)).spent.turn
        assert (spent.prompt, spent.completion) == (250, 25), (
            "two answers on what was seen, and the last step"
        )
        assert (await ask(mesh, "replay", turn="1"))["result"]["same"] is True

    playing(tmp_path, world, model, body)


def test_fast_changing_world_costs_a_bounded_number_of_requests(
    tmp_path: Path,
) -> None:
    world = World()

    def changes() -> None:
        world.word += "!"

    model = Slow("fire", changes)

    async def body(mesh: SimMesh, ref: SessionRef) -> None:
        assert len(model.asked) == OBSERVATIONS_MAX
        # The executor refuses it by its age, and says to look again.
        assert command(mesh, ref).observation_digest == model.asked[-1]

    playing(tmp_path, world, model, body)


def test_read_waits_for_nothing(tmp_path: Path) -> None:
    world = World()

    def changes() -> None:
        world.word = "storm"

    model = Slow("look", changes)

    async def body(mesh: SimMesh, ref: SessionRef) -> None:
        assert model.asked == ["calm"]
        assert command(mesh, ref).observation_digest == "calm"

    playing(tmp_path, world, model, body)
