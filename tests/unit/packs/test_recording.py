"""Calls are written down outside the journal before they go on, and how they ended after."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shutil
import signal
from pathlib import Path

import pytest
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.packs.port import OutcomeUnknown, ToolContext, ToolFailed
from anchorwatch.packs.recording import KILL_VARIABLE, VARIABLE, read_notes, recorded

from tests.support.packs import BenchRuntime, Sink, bench_agent


def context(tmp_path: Path) -> ToolContext:
    agent = bench_agent(tmp_path)
    return ToolContext(SessionRef("default", "s"), CallId(1, 1, 1), "turn_1", agent, "key", 1, 1.0, 0, 60.0)


async def test_recording_holds_each_start_and_its_end(tmp_path: Path) -> None:
    file, sink = tmp_path / "calls", Sink(tmp_path)
    runtime = recorded(BenchRuntime(sink, honour=True), {VARIABLE: str(file)})
    await runtime.run("fire", {"item": "x"}, context(tmp_path))
    with pytest.raises(ToolFailed):
        await runtime.run("fire", {"item": "x", "mode": "refuse"}, context(tmp_path))
    with pytest.raises(OutcomeUnknown):
        await runtime.run("fire", {"item": "x", "mode": "lost"}, context(tmp_path))
    await runtime.reconcile("build", {"item": "x"}, context(tmp_path))
    notes = read_notes(file)
    assert [each.moment for each in notes] == [
        "begun", "returned", "begun", "failed", "begun", "raised", "done",
    ]  # fmt: skip
    assert {(each.effect_key, each.session, each.call, each.pid) for each in notes} == {
        ("key", "default/s", "1.1.1", os.getpid())
    }


async def test_torn_line_is_skipped_and_affects_no_other(tmp_path: Path) -> None:
    file = tmp_path / "calls"
    file.write_text('{"moment": "beg')
    runtime = recorded(BenchRuntime(Sink(tmp_path), honour=True), {VARIABLE: str(file)})
    await runtime.run("fire", {"item": "x"}, context(tmp_path))
    assert [each.moment for each in read_notes(file)] == ["begun", "returned"]


def test_nothing_is_wrapped_unless_the_environment_says_so(tmp_path: Path) -> None:
    runtime = BenchRuntime(Sink(tmp_path), honour=True)
    assert recorded(runtime, {}) is runtime
    assert read_notes(tmp_path / "none") == []


def fire(tmp_path: Path, mode: str) -> None:
    environment = {VARIABLE: str(tmp_path / "calls"), KILL_VARIABLE: str(tmp_path / "deaths")}
    runtime = recorded(BenchRuntime(Sink(tmp_path), honour=True), environment)
    asyncio.run(runtime.run("fire", {"item": "x", "mode": mode}, context(tmp_path)))


def test_process_dies_once_in_the_first_call_of_a_tool(tmp_path: Path) -> None:
    file, deaths = tmp_path / "calls", tmp_path / "deaths"
    deaths.mkdir()

    def call(mode: str) -> int | None:
        """Carry out a call in a process of its own; its exit code, negative for a signal."""
        process = multiprocessing.get_context("spawn").Process(target=fire, args=(tmp_path, mode))
        process.start()
        process.join()
        return process.exitcode

    assert call("lost") == -signal.SIGKILL, "it was done, and its answer lost"
    assert call("ok") == 0
    (deaths / "fire").unlink()
    assert call("ok") == -signal.SIGKILL
    assert [each.moment for each in read_notes(file)] == ["begun", "begun", "returned", "begun"]
    shutil.rmtree(deaths)
    assert call("ok") == 0
