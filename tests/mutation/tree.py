"""A copy of the sources in which one thing is different, and the tests that are run there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
COPIED = ("shared", "services", "packs", "tests", "tools", "pyproject.toml")
TIMEOUT_S = 100
_TAIL_CHARS = 3_000


@dataclass(frozen=True)
class Edit:
    """``old`` must stand exactly once in ``file``, so that a mutation cannot outlive the code that it was made for."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Family:
    """What a run of tests came to. ``broken``: tests that could not be run, which proves nothing."""

    passed: int
    failed: tuple[str, ...]
    broken: tuple[str, ...]
    output: str


class Tree:
    """A copy below ``directory``."""

    def __init__(self, directory: Path) -> None:
        self._root = directory / "tree"
        self._root.mkdir()
        for name in COPIED:
            source, target = ROOT / name, self._root / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns(".hypothesis", "*.egg-info"))
            else:
                shutil.copy2(source, target)

    def edit(self, edit: Edit) -> None:
        """Make one change.

        Raises:
            AssertionError: what is to be replaced does not stand there exactly once.
        """
        path = self._root / edit.file
        text = path.read_text(encoding="utf-8")
        found = text.count(edit.old)
        assert found == 1, f"{edit.file} has {found} times:\n{edit.old}"
        path.write_text(text.replace(edit.old, edit.new), encoding="utf-8")

    def origin(self, module: str) -> Path:
        """The file that ``module`` is imported from in this tree."""
        code = f"import {module}; print({module}.__file__)"
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=self._root, env=self._environment(), check=True,
            capture_output=True, text=True, timeout=TIMEOUT_S,
        )  # fmt: skip
        return Path(done.stdout.strip())

    def run(self, tests: Sequence[str], *, first_failure_only: bool) -> Family:
        """Run ``tests`` (node ids) in a process of their own."""
        report = self._root / "report.xml"
        command = [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--junit-xml={report}",
            *(["-x"] if first_failure_only else []), *tests,
        ]  # fmt: skip
        done = subprocess.run(
            command, cwd=self._root, env=self._environment(), check=False, timeout=TIMEOUT_S,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        output = done.stdout[-_TAIL_CHARS:]
        assert report.exists(), f"the tests were not run:\n{output}"
        return _read(report, output)

    def _environment(self) -> dict[str, str]:
        services = sorted(str(path) for path in (self._root / "services").iterdir() if path.is_dir())
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
        return kept | {
            "PYTHONPATH": os.pathsep.join([str(self._root / "shared"), *services]),
            "PYTHONDONTWRITEBYTECODE": "1",
            # A mutant that is found is found by the first examples, or the family is too wide.
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self._root / ".hypothesis"),
        }


def _read(report: Path, output: str) -> Family:
    # Written by the pytest that this process has just run.
    cases = list(ET.parse(report).getroot().iter("testcase"))  # noqa: S314
    failed = tuple(case.get("name", "") for case in cases if case.find("failure") is not None)
    broken = tuple(case.get("name", "") for case in cases if case.find("error") is not None)
    return Family(len(cases) - len(failed) - len(broken), failed, broken, output)
