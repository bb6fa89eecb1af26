"""Make or refresh the virtual environment. Called by `make setup` when its stamp is stale.

Standard library only, and no new syntax: an old Python must get far enough to report that it is too old.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

PYTHON_MIN = (3, 11)
OUTPUT_LINES_MAX = 30
VENV = Path(".venv")
PYTHON = VENV / "bin" / "python"


def main(stamp: Path) -> None:
    """Install everything pinned, then both distributions; write the stamp last."""
    if sys.version_info < PYTHON_MIN:
        fail(
            f"Python 3.11 or newer is required, and {sys.executable} is {sys.version.split()[0]}. "
            "Name another one: make setup PYTHON=python3.13"
        )
    with Path(".venv.lock").open("w") as lock:
        # Two terminals may start at once; the second finds the work done.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and PYTHON.exists():
            return
        stamps = list(VENV.glob(".setup-*"))
        if not stamps or not PYTHON.exists() or was_moved():
            make_venv()
        for old in stamps:
            # From here on the environment is unfinished: after an interruption it is rebuilt.
            old.unlink(missing_ok=True)
        install()
        stamp.touch()


def was_moved() -> bool:
    """Whether the environment was made at another path, which its scripts and `activate` contain."""
    script = VENV / "bin" / "activate"
    return not script.exists() or str(VENV.absolute()) not in script.read_text(encoding="utf-8")


def make_venv() -> None:
    print("Making the virtual environment in .venv", flush=True)
    shutil.rmtree(VENV, ignore_errors=True)
    if subprocess.call([sys.executable, "-m", "venv", str(VENV)]) != 0:
        fail(f"{sys.executable} could not create .venv: its venv module is missing (Debian: python3-venv)")


def install() -> None:
    print("Installing the pinned packages, anchorwatch and anchorwatch-fleet", flush=True)
    pip("--require-hashes", "-r", "requirements.lock")
    # The build backend comes from the lock, so nothing is fetched without a hash.
    pip("--no-deps", "--no-build-isolation", "--no-index", "-e", ".", "-e", "./packs/fleet")


def pip(*arguments: str) -> None:
    """Run pip quietly; print its output only when it fails."""
    command = [str(PYTHON), "-m", "pip", "install", "--progress-bar", "off", "--disable-pip-version-check"]
    # The build backend looks for its own executable on the PATH.
    path = os.pathsep.join((str(PYTHON.parent.absolute()), os.environ.get("PATH", os.defpath)))
    environment = dict(os.environ, PATH=path, PIP_ROOT_USER_ACTION="ignore")
    done = subprocess.run(
        [*command, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        print(*done.stdout.splitlines()[-OUTPUT_LINES_MAX:], sep="\n", file=sys.stderr)
        fail("pip failed, see above. Fix the cause and run make setup again")


def fail(message: str) -> NoReturn:
    sys.exit(f"make setup: {message}")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except KeyboardInterrupt:
        fail("interrupted; run it again to continue")
