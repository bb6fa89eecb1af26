"""The result of an examination, for people and programs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from anchorwatch.bus.port import Stored
from anchorwatch.core.names import SessionRef
from anchorwatch.core.times import iso
from anchorwatch.journal.integrity.examine import Examiner, Repair
from anchorwatch.journal.integrity.findings import Finding


@dataclass(frozen=True, slots=True)
class Examination:
    """The findings in a session's records up to journal sequence ``through``.

    ``unloadable``: why the session cannot be loaded; empty if it can.
    """

    examiner: Examiner
    through: int
    unloadable: str = ""

    @property
    def ref(self) -> SessionRef:
        return self.examiner.ref

    @property
    def findings(self) -> Sequence[Finding]:
        return self.examiner.findings

    @property
    def open(self) -> list[Finding]:
        """The findings that no repair has accepted."""
        return [finding for finding in self.findings if self.accepted(finding) is None]

    def accepted(self, finding: Finding) -> Repair | None:
        """The repair that accepted the finding."""
        return next((repair for repair in self.examiner.repairs if finding.id in repair.accepted), None)

    def to_json(self) -> dict[str, Any]:
        """For programs. ``whole``: no finding is open."""
        examiner = self.examiner
        status = examiner.anchor.status if examiner.anchor else "unknown"
        findings = []
        for finding in self.findings:
            repair = self.accepted(finding)
            findings.append({**finding.to_json(), "accepted_at": repair.sequence if repair else None})
        return {
            "session": self.ref.session,
            "whole": not self.open,
            "runs": not self.unloadable and status != "quarantined",
            "status": status,
            "records": examiner.records,
            "first": examiner.first,
            "last": examiner.last,
            "through": self.through,
            "findings": findings,
            "repairs": [
                {
                    "sequence": each.sequence,
                    "at": iso(each.at_ms),
                    "by": each.by,
                    "note": each.note,
                    "accepted": len(each.accepted),
                }
                for each in examiner.repairs
            ],
        }


def examine(ref: SessionRef, messages: Iterable[Stored], holes: Iterable[tuple[int, int]] = ()) -> Examiner:
    """Examine all records of a session in order, and the holes of its stream."""
    examiner = Examiner(ref)
    for stored in messages:
        examiner.take(stored)
    examiner.miss(holes)
    return examiner
