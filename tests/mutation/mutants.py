"""Runs tests on sources of which some are edited in memory; the tree is not copied or changed.

A warm process (`tests.mutation.warm`) has imported pytest and the libraries, and forks for each run: the child imports
the product fresh, with the edits. Edits reach the test's own process only, so families do not start processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 100
_TAIL_CHARS = 3_000


@dataclass(frozen=True)
class Edit:
    """``old`` occurs exactly once in ``file``, so a mutation cannot outlive the code that it edits."""

    file: str
    old: str
    new: str

    def applied(self, text: str) -> str:
        """The text of the file after the edit.

        Raises:
            AssertionError: ``old`` does not occur exactly once.
        """
        found = text.count(self.old)
        assert found == 1, f"{self.file} has {found} times:\n{self.old}"
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Family:
    """The results of a run. ``broken``: tests that could not run, which proves nothing."""

    passed: int
    failed: tuple[str, ...]
    broken: tuple[str, ...]
    output: str


def edited(edits: Sequence[Edit]) -> dict[str, str]:
    """The new texts of the edited files, by absolute path."""
    texts: dict[str, str] = {}
    for edit in edits:
        path = str(ROOT / edit.file)
        texts[path] = edit.applied(texts.get(path) or Path(path).read_text(encoding="utf-8"))
    return texts


class WarmProcess:
    """The process that forks for each run."""

    def __init__(self) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.mutation.warm"],
            cwd=ROOT, env=kept, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Closes its input, which ends it, and waits.
        self._process.__exit__(None, None, None)

    def run(
        self, directory: Path, edits: Sequence[Edit], tests: Sequence[str], *, first_failure_only: bool
    ) -> Family:
        """Run ``tests`` (node ids) with ``edits``; ``directory`` takes what the run writes.

        Raises:
            AssertionError: an edit does not apply, or pytest did not finish.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        report, output = directory / "report.xml", directory / "output"
        request = {
            "texts": edited(edits),
            "arguments": [f"--junit-xml={report}", *(["-x"] if first_failure_only else []), *tests],
            "output": str(output),
            "hypothesis": str(directory / ".hypothesis"),
            "timeout_s": TIMEOUT_S,
        }
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        said = output.read_text(encoding="utf-8", errors="replace")[-_TAIL_CHARS:]
        assert report.exists(), f"the tests did not run ({answer.strip()}):\n{said}"
        return _read(report, said)


def _read(report: Path, output: str) -> Family:
    # Written by the pytest that this process has just run.
    cases = list(ET.parse(report).getroot().iter("testcase"))  # noqa: S314
    failed = tuple(case.get("name", "") for case in cases if case.find("failure") is not None)
    broken = tuple(case.get("name", "") for case in cases if case.find("error") is not None)
    return Family(len(cases) - len(failed) - len(broken), failed, broken, output)
