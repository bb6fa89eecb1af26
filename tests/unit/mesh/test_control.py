"""The path of the control socket is short, even where the path of the data directory is long."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from anchorwatch.mesh.control import SOCKET_PATH_BYTES_MAX, socket_path
from anchorwatch.mesh.files import DataDir


@pytest.mark.parametrize("data_depth", [1, 10, 60])
@pytest.mark.parametrize("tmp_depth", [0, 60])
def test_each_data_directory_has_its_own_socket_path(
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
