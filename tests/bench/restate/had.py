"""Restate's server and SDK, installed into a directory of the run by the package managers that are there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SERVER, SDK = "@restatedev/restate-server@1.7", ("restate-sdk==1.3.0", "hypercorn==0.18.0")
INSTALL_S_MAX = 300.0
ERROR_CHARS = 300


class NotHad(Exception):
    """It cannot be had here, and why."""


@dataclass(frozen=True)
class Restate:
    """Where it is. ``how``: the commands by which it came."""

    server: str
    python: str
    version: str
    how: str


def install(directory: Path) -> Restate:
    """Install it.

    Raises:
        NotHad: a command is missing, or fails.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise NotHad("npm, which carries its server, is not on the PATH")
    python = str(directory / "venv" / "bin" / "python")
    commands = (
        (npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(directory), SERVER),
        (sys.executable, "-m", "venv", str(directory / "venv")),
        (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *SDK),
    )
    for command in commands:
        _run(command)
    found = sorted(directory.glob("node_modules/@restatedev/restate-server-*/bin/restate-server"))
    if not found:
        raise NotHad(f"{SERVER} has no server for this machine")
    version = _run((str(found[0]), "--version")).rpartition(" ")[2]
    how = f"npm install {SERVER}; pip install {' '.join(SDK)}"
    return Restate(str(found[0]), python, version, how)


def _run(command: tuple[str, ...]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=INSTALL_S_MAX)
    except subprocess.CalledProcessError as error:
        raise NotHad(f"`{Path(command[0]).name} …` failed: {error.stderr.strip()[-ERROR_CHARS:]}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotHad(f"`{Path(command[0]).name} …` failed: {error}") from None
    return done.stdout.strip()
