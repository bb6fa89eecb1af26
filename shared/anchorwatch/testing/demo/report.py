"""How the demo's outcome is told: for people, and as data. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from anchorwatch.testing.demo.checks import Check
from anchorwatch.testing.demo.evidence import Evidence


@dataclass(frozen=True, slots=True)
class Outcome:
    """All checks of one run. ``kept``: where the data are, when they were kept."""

    seed: int
    seconds: float
    checks: tuple[Check, ...]
    evidence: Evidence
    kept: str | None = None

    @property
    def ok(self) -> bool:
        return bool(self.checks) and all(check.ok for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """As data."""
        seen = self.evidence
        return {
            "ok": self.ok,
            "seed": self.seed,
            "seconds": self.seconds,
            "data_dir": self.kept,
            "checks": [check.to_json() for check in self.checks],
            "incident": dict(seen.incident),
            "kills": [asdict(kill) for kill in seen.kills],
            "claim": asdict(seen.claim) if seen.claim else None,
            "runs": [
                {
                    "run_id": record.anchor.run_id,
                    "outcome": record.anchor.last_run_outcome,
                    "reason": record.reason,
                    "sequence": record.sequence,
                }
                for record in seen.history.of_kind("turn_ended")
            ],
            "launches": {key: dict(starts) for key, starts in seen.launched.items()},
            "notifications": dict(Counter(each.webhook_id for each in seen.arrivals)),
            "anchor": {name: value for name, value in seen.anchor.items() if name != "record"},
        }

    def to_text(self) -> str:
        """For people: each check in three lines, then the verdict."""
        lines = [""]
        for check in self.checks:
            lines += [
                f"{'ok    ' if check.ok else 'FAILED'}  {check.name}",
                f"          expected  {check.expected}",
                f"          seen      {check.seen}",
            ]
        failed = [check.name for check in self.checks if not check.ok]
        lines.append("")
        if failed:
            lines.append(f"{len(failed)} of {len(self.checks)} checks failed: {'; '.join(failed)}")
            lines.append(f"to look at it: anchorwatch demo --keep --seed {self.seed}")
        else:
            lines.append(f"all {len(self.checks)} checks hold, after {self.seconds:.0f} s")
        return "\n".join(lines)
