"""``logs``: the files of a mesh as one log, by time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.waiting import until
from tests.unit.cli.conftest import Run

Write = Callable[..., None]


def entry(second: int, event: str, **more: object) -> str:
    at = f"2026-03-17T18:56:{second:02}.5Z"
    return json.dumps({"at": at, "level": "info", "event": event, "logger": "x", **more})


@pytest.fixture
def write(monkeypatch: pytest.MonkeyPatch) -> Write:
    """Append lines to the log of a process."""
    monkeypatch.setenv("TZ", "UTC")
    directory = Path(".anchorwatch/logs")
    directory.mkdir(parents=True)

    def append(instance: str, *lines: str) -> None:
        with (directory / f"{instance}.log").open("a") as log:
            log.write("".join(f"{line}\n" for line in lines))

    return append


@pytest.fixture
def three(write: Write) -> None:
    write("planner-1", entry(1, "started", pid=7), entry(5, "turn.started", session="fleet"))
    write("planner-2", entry(3, "started"), "Traceback:", "  forged\x1b[2J\u202e")
    write(
        "nats", "[12] 2026/03/17 18:56:02.250000 [INF] Server is ready", "[12] 2026/03/17 18:56:04.1 [INF] x"
    )


@pytest.mark.usefixtures("three")
def test_lines_are_merged_by_time(run: Run) -> None:
    lines = run("logs").out.splitlines()
    assert [line.split()[2] for line in lines] == [
        "planner-1", "nats", "planner-2", "planner-2", "planner-2", "nats", "planner-1"]  # fmt: skip
    assert lines[0] == "2026-03-17 18:56:01+00:00  planner-1     info     started  pid=7"
    assert lines[-1].endswith("turn.started  session=fleet")
    assert lines[4].endswith("forged\\u001b[2J\\u202e")


@pytest.mark.usefixtures("three")
def test_one_service_or_process_is_chosen(run: Run) -> None:
    assert run("logs", "planner").out.count("\n") == 5
    assert run("logs", "planner-2").out.count("\n") == 3
    assert run("logs", "nats", "--limit", "1").out.endswith("[INF] x\n")
    missing = run("logs", "plan")
    assert missing.code == 4
    assert "nats, planner-1, planner-2" in missing.err


@pytest.mark.usefixtures("three")
def test_json_lines_hold_the_whole_entry(run: Run) -> None:
    report = [json.loads(line) for line in run("logs", "--json").out.splitlines()]
    assert report[0]["instance"] == "planner-1"
    assert report[0]["pid"] == 7
    assert report[4] == {"instance": "planner-2", "line": "  forged\x1b[2J\u202e"}


def test_missing_mesh_has_no_logs(run: Run) -> None:
    ran = run("logs")
    assert ran.code == 4
    assert "`anchorwatch up`" in ran.err


def test_logs_are_followed_over_a_rotation(write: Write) -> None:
    write("planner-1", entry(1, "first"))
    with following() as said:
        until(lambda: len(said()) == 1)
        write("planner-1", entry(2, "second"))
        until(lambda: len(said()) == 2)
        log = Path(".anchorwatch/logs/planner-1.log")
        log.replace(log.with_name("planner-1.log.1"))
        write("planner-1", entry(3, "third"))
        write("executor-1", entry(4, "fourth"))
        lines = until(lambda: said() if len(said()) == 4 else None)
    assert lines is not None
    assert [json.loads(line)["event"] for line in lines] == ["first", "second", "third", "fourth"]


@contextlib.contextmanager
def following() -> Iterator[Callable[[], list[str]]]:
    """`logs -f` as a process, and the lines that it has printed; Ctrl-C ends it, which is not a failure."""
    out = Path("out")
    command = [sys.executable, "-P", "-m", "anchorwatch.cli.main", "logs", "-f", "--json"]
    with out.open("w") as file, subprocess.Popen(command, stdout=file, env={**os.environ}) as verb:
        try:
            yield lambda: out.read_text().splitlines()
            verb.send_signal(signal.SIGINT)
            assert verb.wait(30) == 0
        finally:
            verb.kill()
