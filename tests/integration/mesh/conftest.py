from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.mesh.meshes import SmallMesh


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[SmallMesh]:
    small = SmallMesh(tmp_path / "data")
    yield small
    small.end()
