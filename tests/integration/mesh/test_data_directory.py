"""A data directory has one mesh, even if its paths change; its files belong to its owner only."""

import json
import os
import signal
import stat
import subprocess
from pathlib import Path

import pytest
from anchorwatch.cli import running
from anchorwatch.core.errors import Refused
from anchorwatch.mesh import lock as lock_module
from anchorwatch.mesh import nats_server
from anchorwatch.mesh.files import DataDir
from anchorwatch.mesh.lock import Holder, acquire_lock, lock_holder
from anchorwatch.mesh.ports import any_free, is_free

from tests.integration.mesh.meshes import SmallMesh, all_gone
from tests.support.waiting import is_running, until


def test_second_mesh_is_refused_after_the_lock_file_moved(mesh: SmallMesh) -> None:
    assert mesh.run("--detach").returncode == 0
    pids = mesh.pids
    mesh.data.lock.rename(mesh.root / "lock.moved")
    second = mesh.run("--detach")
    assert second.returncode == 5
    assert f"already running on {mesh.root}" in second.stderr
    assert all(map(is_running, pids))
    assert mesh.row("planner-1")["ready"]
    assert running.stop(mesh.data) == pids[0]
    all_gone(pids)


@pytest.mark.parametrize("inner", [False, True])
def test_second_mesh_is_refused_under_another_path(mesh: SmallMesh, tmp_path: Path, *, inner: bool) -> None:
    """``inner``: only the store is shared, by a link in a second data directory."""
    assert mesh.run("--detach").returncode == 0
    other = SmallMesh(tmp_path / "other")
    if inner:
        other.root.mkdir()
        (other.root / "nats").symlink_to(mesh.data.nats_store)
    else:
        other.root.symlink_to(mesh.root)
    second = other.run("--detach")
    assert second.returncode == 5
    assert ("another NATS server uses the store" if inner else "already running") in second.stderr
    assert all(map(is_running, mesh.pids))


def test_mesh_stops_when_its_directory_is_replaced(mesh: SmallMesh) -> None:
    mesh.up()
    assert mesh.launcher is not None
    assert mesh.launcher.stdout is not None
    pids, moved = mesh.pids, SmallMesh(mesh.root.with_name("moved"))
    mesh.root.rename(moved.root)
    # The first mesh may still be stopping; the two must share no file.
    second = mesh.run("--detach")
    assert second.returncode == 0, second.stderr
    assert mesh.launcher.wait(60) == 1
    assert f"{mesh.root} was moved, replaced or removed" in mesh.launcher.stdout.read()
    all_gone(pids)
    # The end of the first mesh has removed nothing of the second.
    assert all(map(is_running, mesh.pids))
    assert mesh.data.lock.exists()
    assert mesh.row("nats")["restarts"] == 0
    assert not (moved.root / "nats" / "nats").exists()
    assert moved.run("--detach").returncode == 0
    moved.end()


def test_mesh_stops_when_its_store_is_replaced(mesh: SmallMesh) -> None:
    mesh.up()
    assert mesh.launcher is not None
    pids = mesh.pids
    mesh.data.nats_store.rename(mesh.root / "nats.moved")
    mesh.data.nats_store.mkdir()
    assert mesh.launcher.wait(60) == 1
    all_gone(pids)
    assert not list(mesh.data.nats_store.iterdir())


def test_edited_nats_conf_is_rewritten_at_each_start(mesh: SmallMesh) -> None:
    assert mesh.run("--detach").returncode == 0
    right = mesh.data.nats_config.read_text()
    first = mesh.pid("nats")
    mesh.data.nats_config.write_text("listen: 127.0.0.1:1\njetstream: {store_dir: /nowhere}\n")
    os.kill(first, signal.SIGKILL)
    until(lambda: mesh.row("nats")["ready"] and mesh.row("nats")["pid"] != first, 60)
    assert mesh.data.nats_config.read_text() == right
    assert stat.S_IMODE(mesh.data.nats_config.stat().st_mode) == 0o600


def test_server_that_a_person_starts_does_not_use_the_store(mesh: SmallMesh, tmp_path: Path) -> None:
    assert mesh.run("--detach").returncode == 0
    text = mesh.data.nats_config.read_text()
    port = any_free()
    config = tmp_path / "copy.conf"
    config.write_text("\n".join(line for line in text.splitlines() if not line.startswith("listen")))
    log = tmp_path / "stray.log"
    with log.open("w") as out, subprocess.Popen(
        [nats_server.find_binary(), "--config", config, "--port", str(port)],
        cwd=mesh.root, stdout=out, stderr=out, env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as stray:  # fmt: skip
        until(lambda: not is_free(port))
        stray.terminate()
    [line] = [line for line in log.read_text().splitlines() if "Store Directory" in line]
    assert str(tmp_path / "nats") in line


def test_store_stays_locked_while_its_server_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = DataDir.at(tmp_path / "data")
    data.make()
    lock = acquire_lock(data, Holder(1, "x"))
    with subprocess.Popen(["sleep", "60"], pass_fds=(lock.store_fd,)) as server:
        lock.release()
        monkeypatch.setattr(lock_module, "STORE_TRIES", 5)
        with pytest.raises(Refused, match="another NATS server uses the store"):
            acquire_lock(data, Holder(2, "y"))
        server.kill()
    acquire_lock(data, Holder(1, "x")).release()
    assert lock_holder(data) is None


def test_existing_directory_becomes_private_at_start(mesh: SmallMesh) -> None:
    for directory in (mesh.root, mesh.root / "memory"):
        directory.mkdir()
        directory.chmod(0o755)
    old = mesh.root / "memory" / "default.db"
    old.write_text("old")
    old.chmod(0o644)
    before = os.umask(0o022)
    try:
        assert mesh.run("--detach").returncode == 0
    finally:
        os.umask(before)
    found = [mesh.root, *mesh.root.rglob("*")]
    assert {path.name for path in found} >= {"default.db", "jetstream", "planner-1.log", "lock"}
    assert [str(path) for path in found if path.lstat().st_mode & 0o077] == []
    assert json.loads(mesh.data.lock.read_text())["pid"] == mesh.mesh.pid
