"""Executors in separate processes: one is suspended, replaced and resumed; one is only slow."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from anchorwatch.core.effect.state import Claimed
from anchorwatch.core.records import Kind
from anchorwatch.journal.effect_mapping import read_effect
from anchorwatch.topology.streams import journal_stream
from anchorwatch.topology.subjects import CLAIM, SessionSubjects

from tests.support.nats_server import NatsServer
from tests.support.packs import Sink
from tests.support.sessions import Decided, ScriptedSession
from tests.support.waiting import eventually, is_stopped

ROOT = Path(__file__).parents[3]
# Of the slow one, which is alive, and may be held up for almost so long.
LEASE_S = 2.5
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(server: NatsServer, tmp_path: Path) -> Iterator[Start]:
    """Start an executor process against the test's server."""
    started: list[subprocess.Popen[bytes]] = []

    def start_one(instance: str, failpoints: str = "") -> subprocess.Popen[bytes]:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ANCHORWATCH_")},
            "ANCHORWATCH_NATS_URL": server.url,
            "ANCHORWATCH_INSTANCE": instance,
            "ANCHORWATCH_LEASE_S": str(LEASE_S),
            "ANCHORWATCH_DATA_DIR": str(tmp_path / "data"),
            "ANCHORWATCH_FAILPOINTS": failpoints,
            "PYTHONPATH": str(ROOT),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.bench_service", "executor"],
            stderr=subprocess.DEVNULL, env=environment, cwd=tmp_path)  # fmt: skip
        started.append(process)
        return process

    yield start_one
    for process in started:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


async def owners(session: ScriptedSession, command: Decided) -> list[str]:
    """Who claimed it, in order."""
    subject = SessionSubjects(session.ref).effect(command.pool, command.call, CLAIM)
    page = await session.bus.range(journal_stream(), subject, 1)
    events = [read_effect(stored) for stored in page.messages]
    return [event.owner.instance for event in events if isinstance(event, Claimed)]


@pytest.mark.parametrize(("tool", "state"), [("fire", "unknown"), ("set", "succeeded")])
async def test_outcome_of_a_replaced_executor_is_kept_as_late(
    start: Start, session: ScriptedSession, sink: Sink, tool: str, state: str
) -> None:
    first = start("executor-1", "executor.outcome.before=stop")
    command = await session.command(tool)

    async def stopped() -> bool:
        return is_stopped(first.pid)

    await eventually(stopped, 30.0)
    assert len(sink.effects()) == 1
    start("executor-2")
    done = await session.outcome(command, within_s=60)
    assert done.state == state
    first.send_signal(signal.SIGCONT)

    async def late() -> bool:
        return bool(await session.last("late.>"))

    await eventually(late)
    (record,) = await session.last("late.>")
    assert (record.body["tool"], record.body["state"], record.body["owner"][0]) == (
        tool,
        "succeeded",
        "executor-1",
    )
    assert (await session.outcome(command)).state == state
    assert len(sink.effects()) == 1, "its provider honours the key, and an irreversible one is not done again"


async def test_replaced_executor_sends_no_request(start: Start, session: ScriptedSession, sink: Sink) -> None:
    """It claimed, and was stopped before it looked at the fence. It looks when it wakes, and its run is over by then."""
    first = start("executor-1", "executor.claim.after=stop")
    command = await session.command("fire")

    async def stopped() -> bool:
        return is_stopped(first.pid)

    await eventually(stopped, 30.0)
    start("executor-2")
    assert (await session.outcome(command, within_s=60)).state == "unknown"
    await session.end("unresolved")
    first.send_signal(signal.SIGCONT)
    await session.acquire("turn_2")
    following = await session.command("fire", item="y")
    assert (await session.outcome(following, within_s=60)).state == "succeeded"
    assert [effect["item"] for effect in sink.effects()] == ["y"]


async def test_slow_executor_is_not_replaced(start: Start, session: ScriptedSession, sink: Sink) -> None:
    """Its tool takes longer than several leases and ack waits."""
    start("executor-1")
    command = await session.command("plod")

    async def begun() -> bool:
        return bool(await session.records(command))

    await eventually(begun, 30.0)
    start("executor-2")
    assert (await session.outcome(command, within_s=60)).state == "succeeded"
    assert await session.records(command) == [Kind.CLAIM, Kind.OUTCOME]
    assert await owners(session, command) == ["executor-1"]
    assert len(sink.effects()) == 1
