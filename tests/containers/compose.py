"""The mesh of compose.yaml, run by a test: a project of its own, on ports of its own, gone when the test is over."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx2

from tests.containers.engine import Engine
from tests.support.nats_server import free_ports

ROOT = Path(__file__).parents[2]
POLL_S = 0.5
# Measured: up to 8 s on an idle machine.
ELECTION_S_MAX = 20.0


@dataclass(frozen=True)
class Mesh:
    """A project that is up."""

    engine: Engine
    files: tuple[str, ...]
    nats_port: int
    api_port: int

    @property
    def nats_url(self) -> str:
        return f"nats://127.0.0.1:{self.nats_port}"

    def compose(self, *arguments: str, timeout_s: float = 600.0) -> str:
        """Run `docker compose` on this project."""
        files = [word for name in self.files for word in ("--file", str(ROOT / name))]
        return self.engine.run(
            "docker", "compose", "--progress", "plain", *files, *arguments, timeout_s=timeout_s
        )

    def read_secret(self, path: str) -> str:
        """A file of the volume that `init` filled."""
        return self.compose("exec", "-T", "gateway", "cat", f"/run/anchorwatch/{path}").strip()

    def containers(self, service: str) -> list[str]:
        """The ids of a service's containers."""
        return self.compose("ps", "--quiet", service).split()

    def kill9(self, container: str) -> None:
        """Kill a container's main process as a crash does. (`docker kill` counts as a stop, and nothing restarts.)"""
        # The first child of the init process, which docker puts before it.
        crash = "kill -9 $(cat /proc/1/task/1/children)"
        self.engine.run("docker", "exec", container, "sh", "-c", crash)

    def restarts(self, container: str) -> int:
        """How often docker has restarted a container, or -1 while it does not run."""
        state = json.loads(self.engine.run("docker", "inspect", container))[0]
        return (
            int(state["RestartCount"])
            if state["State"]["Running"] and not state["State"]["Restarting"]
            else -1
        )

    def api(self, path: str) -> Any:
        """GET from the gateway's API. Unavailable (503) is an honest answer during an election: it is asked again."""
        headers = {"Authorization": f"Bearer {self.read_secret('credentials/token')}"}
        url = f"http://127.0.0.1:{self.api_port}{path}"
        answer = eventually(
            lambda: httpx2.get(url, headers=headers, timeout=10),
            lambda seen: seen.status_code != HTTPStatus.SERVICE_UNAVAILABLE,
            ELECTION_S_MAX,
        )
        answer.raise_for_status()
        return answer.json()


@contextlib.contextmanager
def mesh_up(engine: Engine, *arguments: str, files: tuple[str, ...] = ("compose.yaml",)) -> Iterator[Mesh]:
    """Build, start, wait until all is healthy; take everything down at the end, and show the logs when it went wrong."""
    nats_port, api_port = free_ports(2)
    settings = {
        "COMPOSE_PROJECT_NAME": f"anchorwatch-test-{api_port}",
        "ANCHORWATCH_TAG": "test",
        "ANCHORWATCH_NATS_PORT": str(nats_port),
        "ANCHORWATCH_PORT": str(api_port),
    }
    mesh = Mesh(replace(engine, environment=engine.environment | settings), files, nats_port, api_port)
    try:
        mesh.compose("up", "--detach", "--wait", "--wait-timeout", "120", *arguments)
        # It ends once the agent and its session are there.
        engine.run("docker", "wait", *mesh.compose("ps", "--all", "--quiet", "fleet").split(), timeout_s=120)
        yield mesh
    except BaseException:
        with contextlib.suppress(RuntimeError):
            print(mesh.compose("ps", "--all"), mesh.compose("logs", "--no-color", "--tail", "60"))
        raise
    finally:
        mesh.compose("down", "--volumes", "--timeout", "5")


def eventually(look: Callable[[], Any], good: Callable[[Any], bool], within_s: float) -> Any:
    """What ``look`` gives as soon as it is ``good``; the last thing seen is in the error."""
    deadline = time.monotonic() + within_s
    while not good(seen := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s} s; last seen: {seen!r}")
        time.sleep(POLL_S)
    return seen
