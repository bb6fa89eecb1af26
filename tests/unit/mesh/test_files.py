import json
import stat
from pathlib import Path

import pytest
from anchorwatch.core.errors import Refused
from anchorwatch.mesh import files
from anchorwatch.mesh.control import SOCKET_PATH_BYTES_MAX, socket_path
from anchorwatch.mesh.files import DataDir, last_line, last_reason, rotate, write_private, write_private_json
from anchorwatch.mesh.state import MeshFile, SavedState, read_mesh, write_mesh


def test_private_file_replaces_the_old_one_atomically(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("old")
    path.chmod(0o644)
    with path.open() as open_before:
        write_private(path, "new")
        assert open_before.read() == "old"
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_failed_write_leaves_only_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "value.json"
    write_private_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_private_json(path, {"a": object()})
    with pytest.raises(UnicodeEncodeError):
        write_private(path, "\ud800")
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_unusable_data_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Refused, match=r"cannot be used: .*Not a directory"):
        DataDir.at(tmp_path / "file" / "data").make()


def test_long_log_is_rotated_and_the_oldest_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LOG_BYTES_MAX", 4)
    log = tmp_path / "planner-1.log"
    rotate(log)
    for number in range(6):
        log.write_text(f"run {number}")
        rotate(log)
    assert not log.exists()
    assert sorted(path.read_text() for path in tmp_path.iterdir()) == ["run 3", "run 4", "run 5"]
    log.write_text("new")
    rotate(log)
    assert log.read_text() == "new"


def test_last_line_of_a_log_is_read_from_its_end(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    assert last_line(log) == ""
    log.write_bytes(b"x" * 100_000 + b"\nValueError: no\xff\n\n")
    assert last_line(log) == "ValueError: no\ufffd"


def test_control_socket_path_is_short_for_any_data_directory(tmp_path: Path) -> None:
    near, far = DataDir.at(tmp_path), DataDir.at(tmp_path / ("x" * 120))
    assert socket_path(near) == near.control
    assert len(bytes(socket_path(far))) <= SOCKET_PATH_BYTES_MAX
    assert socket_path(far) == socket_path(far)
    assert socket_path(far) != socket_path(DataDir.at(tmp_path / ("y" * 120)))


def test_mesh_json_round_trips_and_its_repr_hides_secrets(tmp_path: Path) -> None:
    data = DataDir.at(tmp_path)
    mesh = MeshFile("nats://n", "publisher", "s3cret", "http://a", "t0ken", 7, {"planner": [8]}, "now", "1")
    assert read_mesh(data) is None
    write_mesh(data, mesh)
    assert read_mesh(data) == mesh
    assert "s3cret" not in repr(mesh)
    assert "t0ken" not in repr(mesh)


def test_mesh_json_of_another_version_is_ignored(tmp_path: Path) -> None:
    data = DataDir.at(tmp_path)
    data.mesh.write_text('{"nats_url": "nats://n", "future": 1}')
    assert read_mesh(data) is None


def test_saved_state_ignores_fields_of_another_version(tmp_path: Path) -> None:
    data = DataDir.at(tmp_path)
    data.remembered.write_text('{"port": 8421, "future": 1}')
    assert SavedState.load(data) == SavedState(port=8421)


@pytest.mark.parametrize(("line", "reason"), [
    ('{"event": "service.start_failed", "reason": "no channel (add one)", "level": "error"}', "no channel (add one)"),
    ('{"event": "service.crashed", "exception": "Traceback"}', '{"event": "service.crashed", "exception": "Traceback"}'),
    ("Segmentation fault", "Segmentation fault"),
    ("[1]", "[1]"),
    ("", ""),
])  # fmt: skip
def test_last_reason_is_the_reason_field_of_the_last_line(tmp_path: Path, line: str, reason: str) -> None:
    log = tmp_path / "memory-1.log"
    log.write_text(f"before\n{line}\n" if line else "")
    assert last_reason(log) == reason
