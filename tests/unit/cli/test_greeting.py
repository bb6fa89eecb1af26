"""What `up` says when it is ready fits what was started."""

from pathlib import Path

import pytest
from anchorwatch.cli.up import greeting
from anchorwatch.mesh.files import DataDir
from anchorwatch.mesh.state import MeshFile
from anchorwatch.settings import load


@pytest.mark.parametrize("fleet", [True, False])
def test_it_proposes_the_fleet_only_where_there_is_one(tmp_path: Path, *, fleet: bool) -> None:
    mesh = MeshFile("nats://n", "publisher", "s3cret", "http://a", "t0ken", 7, {"planner": [8]}, "now", "1")
    said = greeting(mesh, DataDir(tmp_path), load(), fleet=fleet, detach=True)
    assert ("fleet jobs add" in said) == ("tail fleet" in said) == fleet
    assert ("agents apply FILE" in said) == (not fleet)
    assert said.splitlines()[-1].startswith("  stop       ")
    assert "s3cret" not in said
    assert "t0ken" not in said
