"""The mutations apply and name tests that exist. `make mutations` runs them; this keeps the table current in `make quick`."""

from __future__ import annotations

import ast
from functools import cache

import pytest

from tests.mutation.mutants import ROOT, edited
from tests.mutation.mutation import Mutation
from tests.mutation.table import MUTATIONS


@cache
def functions(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_mutation_applies_and_names_existing_tests(mutation: Mutation) -> None:
    assert edited(mutation.edits)
    assert mutation.tests
    for test in mutation.tests:
        file, _, name = test.partition("::")
        assert not name or name.partition("[")[0].rpartition("::")[2] in functions(file), test


def test_mutations_have_unique_names() -> None:
    names = [mutation.name for mutation in MUTATIONS]
    assert len(set(names)) == len(names)
