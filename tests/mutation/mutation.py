"""A mutation: a defect in the product, and the tests that must notice it."""

from __future__ import annotations

from dataclasses import dataclass

from tests.mutation.mutants import Edit


@dataclass(frozen=True)
class Mutation:
    """``tests`` must be green on the sources as they are, and go red by a failed test once ``edits`` are made."""

    name: str
    tests: tuple[str, ...]
    edits: tuple[Edit, ...]


def one(name: str, file: str, old: str, new: str, *tests: str) -> Mutation:
    """A mutation of one place."""
    return Mutation(name, tests, (Edit(file, old, new),))
