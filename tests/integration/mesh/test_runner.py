"""One service process: how it starts, says that it is ready, ends, and what its log holds."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.bus.port import Bus

from tests.support.nats_server import NatsServer, free_ports

PROGRAM = Path(__file__).with_name("real_service.py")
Start = Callable[..., subprocess.Popen[str]]
ENDS_S_MAX = 60


@pytest.fixture
def start(server: NatsServer, tmp_path: Path) -> Iterator[Start]:
    """Start a service process against the test's server."""
    started: list[subprocess.Popen[str]] = []

    def start_one(service: str = "executor", how: str = "waits", **settings: str) -> subprocess.Popen[str]:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ANCHORWATCH_")},
            "ANCHORWATCH_NATS_URL": server.url,
            "ANCHORWATCH_LEASE_S": "1.5",
            **settings,
        }
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), service, how],
            stderr=subprocess.PIPE, text=True, env=environment, cwd=tmp_path)  # fmt: skip
        started.append(process)
        return process

    yield start_one
    for process in started:
        process.kill()
        process.communicate()


def log_of(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """Its log, when it has ended."""
    return [json.loads(line) for line in process.communicate(timeout=ENDS_S_MAX)[1].splitlines()]


def wait_for(process: subprocess.Popen[str], event: str) -> list[dict[str, Any]]:
    """The log up to that event."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(json.loads(line))
        if lines[-1]["event"] == event:
            return lines
    raise AssertionError(lines)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_service_runs_until_a_stop_signal(start: Start, how: signal.Signals) -> None:
    process = start(ANCHORWATCH_INSTANCE="executor-7")
    started = wait_for(process, "service.ready")
    process.send_signal(how)
    ended = log_of(process)
    assert process.returncode == 0
    assert ended[-1]["event"] == "service.stopped"
    assert {line["instance"] for line in started + ended} == {"executor-7"}
    assert all({"at", "level", "event", "service"} <= set(line) for line in started + ended)


async def test_presence_exists_while_running_and_records_the_end(start: Start, bus: Bus) -> None:
    bucket = await bus.bucket("leases")
    process = start(ANCHORWATCH_INSTANCE="executor-7")
    wait_for(process, "service.ready")
    entry = await bucket.get("presence.executor.executor-7")
    assert entry is not None
    assert json.loads(entry.value)["pid"] == process.pid
    process.terminate()
    process.communicate(timeout=ENDS_S_MAX)
    entry = await bucket.get("presence.executor.executor-7")
    assert entry is not None
    assert json.loads(entry.value)["ended"] is True


def test_ready_pipe_closes_when_a_service_ends_unready() -> None:
    read_end, write_end = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), "executor"],
            pass_fds=(write_end,), stderr=subprocess.DEVNULL,
            env={**os.environ, "ANCHORWATCH_NATS_URL": "nats://127.0.0.1:1", "ANCHORWATCH_READY_FD": str(write_end)},
        )  # fmt: skip
        os.close(write_end)
        process.terminate()
        process.wait(ENDS_S_MAX)
        assert os.read(read_end, 100) == b""
    finally:
        os.close(read_end)


def test_service_notifies_readiness_on_the_systemd_socket(start: Start) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0anchorwatch-test-{os.getpid()}")
        listener.settimeout(ENDS_S_MAX)
        start(NOTIFY_SOCKET=f"@anchorwatch-test-{os.getpid()}")
        assert listener.recv(100) == b"READY=1\n"


def test_crash_is_exit_70_with_a_traceback_without_secrets(start: Start) -> None:
    process = start(how="crashes", ANCHORWATCH_MODEL_KEY="s3cret-model-key")
    log = log_of(process)
    assert process.returncode == 70
    assert log[-1]["event"] == "service.crashed"
    assert "Traceback" in log[-1]["exception"]
    assert "in its text, and [hidden]" in log[-1]["exception"]


def test_invalid_configuration_is_one_log_line_and_no_crash(start: Start) -> None:
    process = start(how="refuses")
    log = log_of(process)
    assert process.returncode == 2
    assert (log[-1]["event"], log[-1]["reason"]) == (
        "service.start_failed",
        "ops.toml has no channel (add one)",
    )
    assert "exception" not in log[-1]


def test_log_hides_secrets_by_value_and_by_name(start: Start) -> None:
    process = start(
        how="tells", ANCHORWATCH_MODEL_KEY="s3cret-model-key", ANCHORWATCH_TOKEN="s3cret-token-value"
    )
    line = wait_for(process, "a token: [hidden]")[-1]
    assert line["password"] == line["other"] == "[hidden]"


def test_service_that_returns_has_crashed(start: Start) -> None:
    process = start(how="returns")
    assert log_of(process)[-1]["event"] == "service.ended_without_stop"
    assert process.returncode == 70


def test_service_that_does_not_drain_ends_after_the_limit(start: Start) -> None:
    process = start(how="stubborn")
    wait_for(process, "service.ready")
    process.terminate()
    assert log_of(process)[-1]["event"] == "service.drain_timeout"
    assert process.returncode == 0


def test_service_waits_for_a_bus_that_starts_later(start: Start, server: NatsServer) -> None:
    server.kill9()
    process = start()
    wait_for(process, "bus.waiting")
    server.start()
    wait_for(process, "service.ready")


def test_service_start_survives_bus_failures(start: Start) -> None:
    process = start(how="stumbles")
    lines = wait_for(process, "service.ready")
    assert [line["event"] for line in lines].count("bus.waiting") == 3
    process.terminate()
    log_of(process)
    assert process.returncode == 0


def test_service_can_be_stopped_while_it_waits_for_the_bus(start: Start) -> None:
    process = start(ANCHORWATCH_NATS_URL=f"nats://127.0.0.1:{free_ports(1)[0]}")
    wait_for(process, "bus.waiting")
    process.terminate()
    process.communicate(timeout=ENDS_S_MAX)
    assert process.returncode == 0


def test_invalid_settings_are_one_line_and_exit_2(start: Start) -> None:
    process = start(ANCHORWATCH_LEASE_S="never")
    text = process.communicate(timeout=ENDS_S_MAX)[1]
    assert process.returncode == 2
    assert text.startswith("anchorwatch serve: ANCHORWATCH_LEASE_S must be a number")
    assert text.count("\n") == 1


def test_process_ends_when_another_takes_its_name(start: Start) -> None:
    first = start(ANCHORWATCH_INSTANCE="executor-7")
    wait_for(first, "service.ready")
    second = start(ANCHORWATCH_INSTANCE="executor-7")
    wait_for(second, "service.ready")
    assert "instance.replaced" in [line["event"] for line in log_of(first)]
    assert first.returncode == 70
    assert second.poll() is None


def test_unknown_service_is_exit_4_with_the_known_ones() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "anchorwatch.cli.main", "serve", "nope"], capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 4
    assert "executor" in done.stderr
    assert done.stderr.count("\n") == 1


def test_service_survives_a_killed_server(start: Start, server: NatsServer) -> None:
    process = start()
    wait_for(process, "service.ready")
    server.restart()
    process.terminate()
    process.communicate(timeout=ENDS_S_MAX)
    assert process.returncode == 0
