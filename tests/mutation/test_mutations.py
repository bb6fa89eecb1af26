"""Each safeguard has a test that notices its absence: the named tests fail on every mutation of the table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutation.mutants import Edit, WarmProcess, edited
from tests.mutation.mutation import Mutation
from tests.mutation.table import MUTATIONS


@pytest.fixture(scope="session")
def warm() -> Iterator[WarmProcess]:
    with WarmProcess() as process:
        yield process


def by_file() -> dict[str, list[str]]:
    """The named tests by their file."""
    files: dict[str, dict[str, None]] = {}
    for mutation in MUTATIONS:
        for test in mutation.tests:
            files.setdefault(test.partition("::")[0], {})[test] = None
    return {file: list(tests) for file, tests in files.items()}


@pytest.mark.parametrize(("file", "tests"), by_file().items(), ids=by_file())
def test_family_passes_on_unedited_sources(
    file: str, tests: list[str], tmp_path: Path, warm: WarmProcess
) -> None:
    family = warm.run(tmp_path, (), tests, first_failure_only=False)
    assert (family.failed, family.broken) == ((), ()), family.output
    assert family.passed >= len(tests), file


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_mutation_fails_its_tests(mutation: Mutation, tmp_path: Path, warm: WarmProcess) -> None:
    family = warm.run(tmp_path, mutation.edits, mutation.tests, first_failure_only=True)
    assert family.broken == (), family.output
    assert family.failed, f"no test notices {mutation.name}:\n{family.output}"


def test_edits_of_one_file_accumulate_and_stay_in_memory() -> None:
    file = MUTATIONS[0].edits[0].file
    first = MUTATIONS[0].edits[0]
    before = Path(file).read_text(encoding="utf-8")
    both = edited((first, Edit(file, first.new, "something else")))
    assert [text for text in both.values() if "something else" in text and first.old not in text]
    assert Path(file).read_text(encoding="utf-8") == before


def test_edit_that_no_longer_applies_is_an_error() -> None:
    first = MUTATIONS[0].edits[0]
    with pytest.raises(AssertionError, match="has 0 times"):
        edited((first, first))
