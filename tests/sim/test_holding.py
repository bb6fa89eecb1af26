"""A call to a model is dropped once its turn is no longer held, and only then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.core.session.commands import Reset, TakeOver
from anchorwatch.core.session.decide import decide
from anchorwatch.models.port import Model, ModelReply, ModelRequest, OnRetry, StepDecision, ignore
from anchorwatch.testing.mesh import SimMesh
from anchorwatch_planner import main as planner
from anchorwatch_planner.step import WATCH_S

from tests.sim.test_planner import agent, mesh_test, once

WORDS = "I looked, and nothing needs to be done."
Act = Callable[[SimMesh, SessionRef], Awaitable[object]]


@dataclass
class Slow:
    """A language model that answers when it is told to. ``dropped``: when its calls were cancelled, in seconds."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)
    answer: asyncio.Event = field(default_factory=asyncio.Event)
    dropped: list[float] = field(default_factory=list)
    name: str = "slow"
    is_llm: bool = True

    def count(self, request: ModelRequest) -> int:
        return len(request.messages)

    async def complete(
        self, request: ModelRequest, deadline_s: float, on_retry: OnRetry = ignore
    ) -> ModelReply:
        del request, deadline_s, on_retry
        self.asked.set()
        try:
            await self.answer.wait()
        except asyncio.CancelledError:
            self.dropped.append(asyncio.get_running_loop().time())
            raise
        return ModelReply(StepDecision(WORDS))

    async def close(self) -> None: ...


async def cancel(mesh: SimMesh, ref: SessionRef) -> None:
    await mesh.control(ref, Kind.CANCELLED, "cancel")


async def delete(mesh: SimMesh, ref: SessionRef) -> None:
    await mesh.control(ref, Kind.DELETED, "delete")


async def reset(mesh: SimMesh, ref: SessionRef) -> None:
    now_ms = mesh.server.now_ms()
    await mesh.order(
        ref, "reset", lambda state, id_: Reset("outside", now_ms, state.read_through, control_id=id_)
    )


async def take_over(mesh: SimMesh, ref: SessionRef) -> None:
    state = await mesh.sessions.load(ref, 0)
    events = decide(state, TakeOver("planner-9:z", 0, mesh.server.now_ms(), "for the test"))
    await mesh.sessions.append(ref, state, events, mesh.server.now_ms())


async def pause(mesh: SimMesh, ref: SessionRef) -> None:
    await mesh.control(ref, Kind.PAUSED, "pause")


def playing(tmp_path: Path, body: Callable[[SimMesh, SessionRef, Slow], Awaitable[None]]) -> None:
    async def run(mesh: SimMesh) -> None:
        slow = Slow()

        def build(settings: object, spec: object, pack: Any) -> Model:
            del settings, spec, pack
            return slow

        await mesh.open(("planner", partial(planner.run, build=build)))
        ref = await mesh.session("s", agent(tmp_path, once(), heartbeat_s=3600))
        await slow.asked.wait()
        await body(mesh, ref, slow)

    mesh_test(1, run)


@pytest.mark.parametrize("act", [cancel, reset, delete, take_over])
def test_call_is_dropped_once_its_turn_is_no_longer_held(act: Act, tmp_path: Path) -> None:
    async def body(mesh: SimMesh, ref: SessionRef, slow: Slow) -> None:
        await act(mesh, ref)
        raised_at = asyncio.get_running_loop().time()

        async def dropped() -> bool:
            return bool(slow.dropped)

        await mesh.until(dropped, within_s=10)
        assert slow.dropped[0] - raised_at <= WATCH_S + 0.5

    playing(tmp_path, body)


def test_cancelled_turn_says_nothing_and_the_next_is_answered(tmp_path: Path) -> None:
    async def body(mesh: SimMesh, ref: SessionRef, slow: Slow) -> None:
        await cancel(mesh, ref)
        slow.asked.clear()
        await mesh.say(ref, "again", "hello")
        await slow.asked.wait()
        slow.answer.set()
        anchor = await mesh.until_rest(ref, 2)
        assert (anchor.run_id, anchor.last_run_outcome) == (2, "no_action")
        history = mesh.history(ref)
        assert history.ended(1) is None, "nothing is recorded of what it would have said"
        second = history.ended(2)
        assert second is not None
        assert second.text == WORDS

    playing(tmp_path, body)


def test_message_or_pause_during_a_call_drops_nothing(tmp_path: Path) -> None:
    async def body(mesh: SimMesh, ref: SessionRef, slow: Slow) -> None:
        await mesh.say(ref, "more", "hello")
        await pause(mesh, ref)
        await asyncio.sleep(10 * WATCH_S)
        await mesh.control(ref, Kind.RESUMED, "resume")
        await asyncio.sleep(10 * WATCH_S)
        assert slow.dropped == []
        slow.answer.set()
        anchor = await mesh.until_rest(ref, 1)
        assert anchor.last_run_outcome == "no_action"

    playing(tmp_path, body)


def test_disconnected_planner_drops_the_call_once_it_sees_why(tmp_path: Path) -> None:
    async def body(mesh: SimMesh, ref: SessionRef, slow: Slow) -> None:
        process = mesh.processes["planner-1"]
        process.cut()
        await asyncio.sleep(10 * WATCH_S)
        assert slow.dropped == [], "what it cannot see is no reason"
        await cancel(mesh, ref)
        await asyncio.sleep(10 * WATCH_S)
        process.reconnect()

        async def dropped() -> bool:
            return bool(slow.dropped)

        await mesh.until(dropped, within_s=30)

    playing(tmp_path, body)
