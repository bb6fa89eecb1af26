"""Every example in a docstring of the product runs and prints what it says. An example may use ``await``."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import doctest
import inspect
import io
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from anchorwatch.bus.port import ConsumerSpec, Message
from anchorwatch.testing.bus import SimServer, run
from anchorwatch.topology.streams import StreamSpec

from tests.support.services import make_context

ROOT = Path(__file__).parents[2]
PACKAGES = (ROOT / "shared", *sorted((ROOT / "services").iterdir()), ROOT / "packs" / "fleet")
REQUIRED = {
    "anchorwatch.journal.commit.Committer",
    "anchorwatch.journal.register.Register",
    "anchorwatch.packs.port.Pack",
    "anchorwatch.service.worker.Worker",
}
"""The ports of the product: each shows its use."""
FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


async def worker() -> Mapping[str, Any]:
    """A service's ``context`` and a consumer's ``spec``: one message waits, and the service stops after a while."""
    server = SimServer()
    server.ensure_stream(StreamSpec("J", ("j.>",)))
    bus = server.connect(name="service")
    await bus.publish(Message("j.1", b"Ada"))
    context = make_context(bus, "test")
    asyncio.get_running_loop().call_later(5, context.stopping.set)
    return {"context": context, "spec": ConsumerSpec("J", ("j.>",), "workers", ack_wait_s=2.0)}


GIVEN = {"anchorwatch.service.worker.Worker": worker}
"""Names that an example takes as given."""


def examples() -> list[doctest.DocTest]:
    """The docstrings with examples, each with the names of its module."""
    modules = {
        ".".join(path.relative_to(package).with_suffix("").parts).removesuffix(".__init__")
        for package in PACKAGES
        for path in package.rglob("*.py")
        if ">>> " in path.read_text(encoding="utf-8")
    }
    finder = doctest.DocTestFinder(exclude_empty=True)
    return [
        test for name in sorted(modules) for test in finder.find(import_module(name), name) if test.examples
    ]


EXAMPLES = examples()


@pytest.mark.parametrize("test", EXAMPLES, ids=lambda test: test.name)
def test_example_prints_its_documented_output(test: doctest.DocTest) -> None:
    async def main() -> None:
        names = test.globs | ({**await GIVEN[test.name]()} if test.name in GIVEN else {})
        for example in test.examples:
            printed = await printed_by(example.source, names)
            assert doctest.OutputChecker().check_output(example.want, printed, 0), (
                f"{test.name}: {example.source}prints {printed!r}, not {example.want!r}"
            )

    run(main(), 0)


async def printed_by(source: str, names: dict[str, Any]) -> str:
    """What a statement prints, as an interactive Python would."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        result = eval(compile(source, "<example>", "single", FLAGS, dont_inherit=True), names)  # noqa: S307
        if inspect.iscoroutine(result):
            await result
    return output.getvalue()


def test_every_port_has_an_example() -> None:
    assert {test.name for test in EXAMPLES} >= REQUIRED


async def test_statement_prints_its_value() -> None:
    names: dict[str, Any] = {}
    assert await printed_by("import asyncio\n", names) == ""
    assert await printed_by("await asyncio.sleep(0, 1 + 1)\n", names) == "2\n"
