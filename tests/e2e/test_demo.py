"""`anchorwatch demo` itself: every promise kept, told as data, and nothing left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import is_running, until

COMMAND = (sys.executable, "-P", "-m", "anchorwatch.cli.main", "demo")
PLAYED_S_MAX = 280


def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(tmp_path)}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_demo_incident_runs_to_its_end_and_keeps_each_guarantee(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "--json"], capture_output=True, text=True, check=False, timeout=PLAYED_S_MAX,
        env=environment(tmp_path),
    )  # fmt: skip
    report = json.loads(done.stdout)
    assert [check for check in report["checks"] if not check["ok"]] == [], done.stderr
    assert (done.returncode, report["ok"]) == (0, True)
    assert len(report["checks"]) == 23
    assert [kill["service"] for kill in report["kills"]] == ["planner", "executor", "notifier", "nats"]
    assert report["claim"]["killed_pid"] == report["kills"][1]["pid"]
    assert report["data_dir"] is None
    assert list(tmp_path.iterdir()) == []


@contextmanager
def begun(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A demo whose mesh is up, and the pids of that."""
    demo = subprocess.Popen(
        COMMAND, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment(tmp_path),
        start_new_session=True,
    )  # fmt: skip
    try:
        (root,) = until(lambda: list(tmp_path.glob("anchorwatch-demo-*")), 60)
        until(lambda: _mesh(root) or demo.poll() is not None, 60, "its mesh is up")
        assert demo.poll() is None, demo.communicate()[1]
        mesh = _mesh(root)
        assert mesh is not None
        pids = [mesh["pid"], *(pid for of_service in mesh["pids"].values() for pid in of_service)]
        assert all(map(is_running, pids))
        yield demo, pids
    finally:
        demo.kill()
        demo.communicate()


def test_interrupted_it_leaves_nothing(tmp_path: Path) -> None:
    with begun(tmp_path) as (demo, pids):
        # As a terminal does: to everything in the foreground.
        os.killpg(demo.pid, signal.SIGINT)
        _, said = demo.communicate(timeout=120)
        assert demo.returncode == 130, said
        assert said == ""
        assert not any(map(is_running, pids))
    assert list(tmp_path.iterdir()) == []


def test_killed_it_leaves_no_process(tmp_path: Path) -> None:
    with begun(tmp_path) as (demo, pids):
        demo.kill()
        until(lambda: not any(map(is_running, pids)), what="its mesh ended with it")


def _mesh(root: Path) -> dict[str, Any] | None:
    file = root / "data" / "mesh.json"
    found: dict[str, Any] | None = json.loads(file.read_text()) if file.exists() else None
    return found
