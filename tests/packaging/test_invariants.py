"""docs/invariants.md and the code agree: ids are unique, cited ids exist, named tests exist, test names are short."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEST_NAME_CHARS_MAX = 60
TEXT = (ROOT / "docs" / "invariants.md").read_text(encoding="utf-8")
NAMED_TESTS = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", TEXT)
ENTRIES = re.split(r"^(?=- \*\*)", TEXT, flags=re.MULTILINE)[1:]
CODE = [path for top in ("shared", "services", "packs", "tests") for path in (ROOT / top).rglob("*.py")]


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_named_test_exists() -> None:
    assert NAMED_TESTS
    missing = [
        f"{file}::{name}"
        for file, name in NAMED_TESTS
        if not (ROOT / file).exists() or name not in functions(ROOT / file)
    ]
    assert missing == []


def test_every_invariant_names_a_test() -> None:
    assert [entry.splitlines()[0] for entry in ENTRIES if "::test_" not in entry] == []


def test_every_invariant_has_an_id_of_its_own() -> None:
    ids = [re.match(r"- \*\*(INV-\d{3,4}): ", entry) for entry in ENTRIES]
    assert None not in ids
    assert len({found[1] for found in ids if found}) == len(ENTRIES)


def test_every_cited_id_exists() -> None:
    defined = set(re.findall(r"\*\*(INV-\d+): ", TEXT))
    assert defined
    cited = {
        (found, path.name)
        for path in CODE
        for found in re.findall(r"INV-\d+", path.read_text(encoding="utf-8"))
    }
    assert [each for each in sorted(cited) if each[0] not in defined] == []


def test_names_of_tests_are_short() -> None:
    names = {name for path in (ROOT / "tests").rglob("test_*.py") for name in functions(path)}
    tests = {name for name in names if name.startswith("test_")}
    assert tests
    assert sorted(name for name in tests if len(name) > TEST_NAME_CHARS_MAX) == []
