"""Where the control socket goes: its path has a limit that data directories do not have."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from anchorwatch.mesh.control import SOCKET_PATH_BYTES_MAX, socket_path
from anchorwatch.mesh.files import DataDir


@pytest.mark.parametrize("data_depth", [1, 10, 60])
@pytest.mark.parametrize("tmp_depth", [0, 60])
def test_every_data_directory_has_a_socket_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, data_depth: int, tmp_depth: int
) -> None:
    monkeypatch.setattr(
        tempfile, "tempdir", str(tmp_path / ("t" * tmp_depth or "t") / ("t" * tmp_depth or "t"))
    )
    paths = [
        socket_path(DataDir(Path("/srv") / ("d" * data_depth) / ("e" * data_depth) / name)) for name in "ab"
    ]
    assert paths[0] != paths[1]
    assert all(len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX for path in paths)
