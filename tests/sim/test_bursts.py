"""A burst is one turn that knows how much there was of what; a trickle is looked at once in a window, and never starved."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.bus.port import Message
from anchorwatch.context import prompt
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.core.times import from_iso
from anchorwatch.journal.inputs import accept
from anchorwatch.journal.mapping import input_body
from anchorwatch.models.port import Situation, StepDecision
from anchorwatch.testing.checks.wakes import ledger_of
from anchorwatch.testing.mesh import WORKSPACE, SimMesh
from anchorwatch.topology import subjects

from tests.sim.test_planner import agent, mesh_test

BURST = 5_000
KINDS = ("seen", "gone", "new")


def looking(tmp_path: Path, seen: list[int] | None = None, **changes: Any) -> Any:
    def rules(situation: Situation) -> StepDecision:
        if seen is not None:
            seen.append(sum(wake["kind"] == "event" for wake in situation.wakes))
        return StepDecision("looked")

    return agent(tmp_path, rules, **{"heartbeat_s": 3600, **changes})


async def publish(mesh: SimMesh, source: str, count: int) -> None:
    """Events, as any NATS client publishes them, as fast as the server takes them."""
    for start in range(0, count, 100):
        await asyncio.gather(
            *(
                mesh.bus.publish(
                    Message(
                        subjects.event(WORKSPACE, source, KINDS[n % len(KINDS)]),
                        b'{"n": %d}' % n,
                        message_id=f"{source}-{n}",
                    )
                )
                for n in range(start, min(start + 100, count))
            )
        )


def starts_ms(mesh: SimMesh, ref: SessionRef) -> Sequence[int]:
    turns = [each.anchor.turn for each in mesh.history(ref).of_kind(Kind.ACQUIRED)]
    return [from_iso(turn.started_at) for turn in turns if turn is not None]


@pytest.mark.slow
def test_five_thousand_events_make_one_turn_that_counts_kinds(
    tmp_path: Path,
) -> None:
    async def body(mesh: SimMesh) -> None:
        seen: list[int] = []
        await mesh.open("observer", "planner")
        ref = await mesh.session("s", looking(tmp_path, seen, subscriptions=("world.>",)))
        await mesh.until_rest(ref, 1)
        seen.clear()
        await publish(mesh, "world", BURST)
        await mesh.until_rest(ref, 2, within_s=300)
        await asyncio.sleep(60)
        assert (await mesh.anchor(ref)).run_count == 2
        assert seen == [BURST]
        ledger = ledger_of(mesh.history(ref))
        assert len(ledger.of("coalesced")) == BURST - len(KINDS)
        assert not ledger.of("pending")
        records = await mesh.records(ref)
        assert max(len(payload) for _, subject, payload in records if subject.startswith("p.")) < 16_384
        state = await mesh.sessions.load(ref, 0)
        (past,) = state.history[-1:]
        report = prompt.past_messages(past)[0]["content"]
        assert f"{BURST + 1} in all" in report
        for n, kind in enumerate(KINDS):
            count = len(range(n, BURST, len(KINDS)))
            assert f'- {count} × "event/world/{kind}"' in report

    mesh_test(3, body, debounce_p1_s=60)


@pytest.mark.parametrize("seed", range(2))
def test_endless_trickle_is_handled_once_a_window(tmp_path: Path, seed: int) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner", "planner")
        ref = await mesh.session("s", looking(tmp_path))
        await mesh.until_rest(ref, 1)
        began = len(starts_ms(mesh, ref))
        for n in range(120):
            await mesh.say(ref, f"e{n}", kind="event", priority=1)
            await asyncio.sleep(1)
        turns = starts_ms(mesh, ref)[began:]
        assert 9 <= len(turns) <= 12
        assert all(10_000 <= after - before <= 13_000 for before, after in itertools.pairwise(turns))

    mesh_test(seed, body)


@pytest.mark.parametrize("seed", range(2))
def test_urgent_input_ends_a_trickle_window_and_takes_it_all(tmp_path: Path, seed: int) -> None:
    async def body(mesh: SimMesh) -> None:
        seen: list[int] = []
        await mesh.open("planner")
        ref = await mesh.session("s", looking(tmp_path, seen))
        await mesh.until_rest(ref, 1)
        seen.clear()
        for n in range(3):
            await mesh.say(ref, f"e{n}", kind="event", priority=1)
            await asyncio.sleep(1)
        await mesh.say(ref, "now", kind="event", priority=0)
        await mesh.until_rest(ref, 2, within_s=3)
        assert seen == [4]

    mesh_test(seed, body)


def test_stale_wakes_burst_and_heartbeat_at_once_are_one_run(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        seen: list[int] = []
        await mesh.open("planner")
        ref = await mesh.session("s", looking(tmp_path, seen, heartbeat_s=60))
        await mesh.until_rest(ref, 1)
        await mesh.processes["planner-1"].kill()
        now_ms = mesh.server.now_ms()
        for n in range(20):
            stale = input_body("event", 1, source="old", type_="stale", expires_at_ms=now_ms + 1_000)
            await accept(mesh.committer, ref, f"old-{n}", stale, at_ms=now_ms, writer="outside")
        await asyncio.sleep(70)
        await asyncio.gather(*(mesh.say(ref, f"e{n}", kind="event", priority=1) for n in range(200)))
        await asyncio.sleep(15)
        seen.clear()
        await mesh.processes["planner-1"].start()
        await mesh.until_rest(ref, 2)
        await asyncio.sleep(50)
        assert (await mesh.anchor(ref)).run_count == 2
        assert seen == [220]
        ledger = ledger_of(mesh.history(ref))
        assert ledger.twice == ()
        assert len(ledger.of("expired")) == 20
        assert len(ledger.of("coalesced")) >= 199
        assert not ledger.of("pending")

    mesh_test(2, body)
