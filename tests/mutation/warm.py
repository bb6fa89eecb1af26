"""The warm process of `mutants`: one request a line on stdin, one answer a line on stdout, one forked child each.

It imports no module of the product, so each child imports them fresh and sees its edits.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

import pytest

LIBRARIES = (
    "fastapi", "httpx2", "hypothesis.stateful", "hypothesis.strategies", "jsonschema_rs", "msgpack", "nats", "openai",
    "prometheus_client", "pydantic_settings", "pytest_asyncio", "structlog", "typer", "uvicorn",
)  # fmt: skip
PRODUCT = "anchorwatch"
POLL_S = 0.02
OPTIONS = (
    "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--seeds", "all",
    # The libraries are imported before pytest could rewrite them, and hold no assertion of ours.
    "-W", "ignore::pytest.PytestAssertRewriteWarning",
)  # fmt: skip


class EditedLoader(SourceFileLoader):
    """Compiles the given text in place of the file's, past any cached bytecode."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        del fullname
        return compile(self._text, self.path, "exec", dont_inherit=True)


class EditedFinder:
    """Finds modules as usual, and gives the edited ones another loader."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin is None or spec.origin not in self._texts:
            return None
        return importlib.util.spec_from_file_location(
            name, spec.origin, loader=EditedLoader(name, spec.origin, self._texts[spec.origin]),
            submodule_search_locations=spec.submodule_search_locations,
        )  # fmt: skip


def main() -> None:
    for name in LIBRARIES:
        importlib.import_module(name)
    assert not any(name.startswith(PRODUCT) for name in sys.modules), (
        "the product is imported before its edits"
    )
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        child = os.fork()
        if child == 0:
            _run(request)
        print(_wait(child, request["timeout_s"]), flush=True)


def _run(request: dict[str, Any]) -> None:
    code = -1
    try:
        os.setsid()
        output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = request["hypothesis"]
        sys.meta_path.insert(0, EditedFinder(request["texts"]))
        code = int(pytest.main([*OPTIONS, *request["arguments"]]))
    finally:
        sys.stdout.flush()
        os._exit(code)


def _wait(child: int, timeout_s: float) -> str:
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return f"exit {os.waitstatus_to_exitcode(status)}"
        time.sleep(POLL_S)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return f"no end after {timeout_s:g} s"


if __name__ == "__main__":
    main()
