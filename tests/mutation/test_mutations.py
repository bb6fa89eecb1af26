"""What holds the promise is not there by chance: with any of it taken away, the suite goes red."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation.mutation import Mutation
from tests.mutation.table import MUTATIONS
from tests.mutation.tree import Tree


def test_the_families_are_green_on_the_sources_as_they_are(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    for module in ("anchorwatch", "anchorwatch_planner", "anchorwatch_executor"):
        assert tree.origin(module).is_relative_to(tmp_path), "what is tested is the copy"
    tests = dict.fromkeys(test for mutation in MUTATIONS for test in mutation.tests)
    family = tree.run(tuple(tests), first_failure_only=False)
    assert (family.failed, family.broken) == ((), ()), family.output
    assert family.passed >= len(tests)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_each_mutation_is_seen(mutation: Mutation, tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    for edit in mutation.edits:
        tree.edit(edit)
    family = tree.run(mutation.tests, first_failure_only=True)
    assert family.broken == (), family.output
    assert family.failed, f"nobody notices {mutation.name}:\n{family.output}"


def test_a_mutation_that_no_longer_fits_the_code_is_said(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    edit = MUTATIONS[0].edits[0]
    tree.edit(edit)
    with pytest.raises(AssertionError, match="has 0 times"):
        tree.edit(edit)
