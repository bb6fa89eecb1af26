"""Older records as today's: a chain of pure functions, each of which lifts by one version.

The frame is the same in every format: of a record the list whose last element is the digest over all before it, of an
anchor the ``record`` beside its fields. So the digest is checked first, and only then the version: a byte that was altered
never passes for a newer release. What is written is always the newest version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from anchorwatch.core.anchor import SCHEMA
from anchorwatch.core.errors import Damaged, NewerSchema
from anchorwatch.core.records import FORMAT, Record

T = TypeVar("T")


@dataclass(frozen=True)
class Versions(Generic[T]):
    """The versions of one kind of thing: ``name`` (as in "the record has format 2"), the ``newest``, and the lifts.

    ``lifts[n]`` converts version n into version n + 1. It never refuses.
    """

    name: str
    newest: int
    lifts: Mapping[int, Callable[[T], T]] = field(default_factory=dict)

    def check(self, found: object) -> int:
        """``found`` as a readable version.

        Raises:
            NewerSchema: it is newer than this release's; both versions are named. Damaged: it is not a version.
        """
        if not isinstance(found, int) or isinstance(found, bool):
            raise Damaged(f"{self.name} {str(found)[:40]!r}, which is not a version")
        if found > self.newest:
            raise NewerSchema(
                f"{self.name} {found}, this release reads up to {self.newest}", hint="upgrade this process"
            )
        return found

    def lift(self, found: object, value: T) -> T:
        """``value`` of version ``found``, converted to the newest version.

        Raises:
            NewerSchema, Damaged: as `check`; Damaged also if no release wrote such a version.
        """
        for version in range(self.check(found), self.newest):
            step = self.lifts.get(version)
            if step is None:
                raise Damaged(f"{self.name} {found}, which no release wrote")
            value = step(value)
        return value


FORMATS: Final = Versions[Record]("the record has format", FORMAT)
"""Of records, the anchor's too: kind, body and the rest of the envelope."""
SCHEMAS: Final = Versions[dict[str, Any]]("the anchor has schema", SCHEMA)
"""Of the anchor's own fields, in its records and in snapshots."""
