"""docs/invariants.md names tests that exist, and none of its invariants is held by nothing."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "invariants.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", TEXT)


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_test_that_is_named_exists() -> None:
    assert NAMED
    missing = [
        f"{file}::{name}"
        for file, name in NAMED
        if not (ROOT / file).exists() or name not in functions(ROOT / file)
    ]
    assert missing == []


def test_every_invariant_names_a_test() -> None:
    invariants = re.split(r"^(?=\d+\. \*\*)", TEXT, flags=re.MULTILINE)[1:]
    # Whoever shows the page counts them: two that are added at once do not collide.
    assert {each.split(".")[0] for each in invariants} == {"1"}
    assert [each.splitlines()[0] for each in invariants if "::test_" not in each] == []
