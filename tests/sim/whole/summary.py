"""What all runs of a session came to, whichever worker made them: faults by kind, durable edges reached, runs a minute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from anchorwatch.edges import Edge

if TYPE_CHECKING:
    from tests.sim.whole.run import Report


@dataclass
class Summary:
    """Sums of runs. ``seconds``: of work, in all processes together."""

    runs: int = 0
    turns: int = 0
    records: int = 0
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    edges: Counter[str] = field(default_factory=Counter)

    def add(self, report: Report, seconds: float) -> None:
        self.runs += 1
        self.turns += report.turns
        self.records += report.records
        self.seconds += seconds
        self.faults.update(report.faults)
        self.edges.update({edge.value: count for edge, count in report.edges.items()})

    def merge(self, other: Mapping[str, Any]) -> None:
        """Add what another process summed up (`to_json`)."""
        self.runs += other["runs"]
        self.turns += other["turns"]
        self.records += other["records"]
        self.seconds += other["seconds"]
        self.faults.update(other["faults"])
        self.edges.update(other["edges"])

    def to_json(self) -> dict[str, Any]:
        return {
            "runs": self.runs,
            "turns": self.turns,
            "records": self.records,
            "seconds": self.seconds,
            "faults": dict(self.faults),
            "edges": dict(self.edges),
        }

    @property
    def unreached(self) -> list[str]:
        """The durable edges at which no process ever was."""
        return [edge.value for edge in Edge if not self.edges[edge.value]]

    def lines(self) -> list[str]:
        """The summary, for people."""
        rate = 60 * self.runs / self.seconds if self.seconds else 0.0
        edges = len(Edge)
        faults = ", ".join(f"{kind} {count}" for kind, count in sorted(self.faults.items()))
        return [
            f"{self.runs} runs of the whole mesh, {rate:.0f} a minute and processor",
            f"{self.turns} turns, {self.records} records",
            f"{sum(self.faults.values())} faults: {faults}",
            f"{edges - len(self.unreached)} of {edges} durable edges reached",
        ]
