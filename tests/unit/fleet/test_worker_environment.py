from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from anchorwatch_fleet.yard.processes import WorkerProcesses


async def test_worker_inherits_no_setting_of_the_mesh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nenv\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setenv("ANCHORWATCH_TOKEN", "secret-1")
    monkeypatch.setenv("ANCHORWATCH_MODEL_KEY_FILE", "secret-2")
    monkeypatch.setenv("OTHER", "kept")
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    workers = WorkerProcesses(tmp_path, {"ANCHORWATCH_NATS_URL": "nats://127.0.0.1:4222"})
    await workers.start("w-1", 3, "key", lambda _instance, _epoch, code: ended.set_result(code))
    assert await ended == 0

    environment = dict(line.split("=", 1) for line in workers.log_lines("w-1", 1_000) if "=" in line)
    assert environment["OTHER"] == "kept"
    assert environment["ANCHORWATCH_NATS_URL"] == "nats://127.0.0.1:4222"
    assert {name for name in environment if name.startswith("ANCHORWATCH_")} == {
        "ANCHORWATCH_NATS_URL",
        "ANCHORWATCH_FLEET_INSTANCE",
        "ANCHORWATCH_FLEET_EPOCH",
        "ANCHORWATCH_FLEET_EFFECT_KEY",
        "ANCHORWATCH_FLEET_BIRTHS",
        "ANCHORWATCH_FLEET_PARENT",
    }
