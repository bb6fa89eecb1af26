"""How the outcome of a crash test is told: for people, and as data. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from anchorwatch.edges import Edge
from anchorwatch.testing.crash_test.trial import Trial

PROMISES = ("lost", "duplicated", "guessed")
VIOLATIONS_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Outcome:
    """All seeds. ``again``: the words that begin the same test again; ``kept``: where the data are, when they were kept."""

    pack: str
    agent: str
    trials: Sequence[Trial]
    again: str
    kept: str | None = None

    @property
    def ok(self) -> bool:
        return bool(self.trials) and all(trial.ok for trial in self.trials)

    @property
    def reached(self) -> list[Edge]:
        """Every edge at which a process died."""
        return [edge for edge in Edge if any(trial.reached[edge] for trial in self.trials)]

    @property
    def worst(self) -> Trial | None:
        """The seed that broke the most promises; None when none did."""
        broken = [trial for trial in self.trials if not trial.ok]
        return max(
            broken, key=lambda trial: (len(trial.violations), len(trial.crashes), -trial.seed), default=None
        )

    def count(self, promise: str) -> int:
        return sum(trial.count(promise) for trial in self.trials)

    def to_json(self) -> dict[str, Any]:
        """As data."""
        worst = self.worst
        return {
            "ok": self.ok,
            "pack": self.pack,
            "agent": self.agent,
            "edges": {
                "reached": [str(edge) for edge in self.reached],
                "missed": [str(edge) for edge in Edge if edge not in self.reached],
            },
            "kills": sum(trial.kills for trial in self.trials),
            **{promise: self.count(promise) for promise in PROMISES},
            "crashes": [crash for trial in self.trials for crash in trial.crashes],
            "worst": {"seed": worst.seed, "again": self._again(worst)} if worst else None,
            "seeds": [
                {
                    "seed": trial.seed,
                    "seconds": round(trial.seconds, 1),
                    "kills": trial.kills,
                    "edges": len(trial.reached),
                    "turns": trial.turns,
                    "commands": trial.commands,
                    "violations": [asdict(each) for each in trial.violations],
                }
                for trial in self.trials
            ],
            "data_dir": self.kept,
        }

    def to_text(self) -> str:
        """For people: what was broken, then the counts, then the worst."""
        lines = []
        for trial in self.trials:
            found = [*map(str, trial.violations), *(f"crashed: {crash}" for crash in trial.crashes)]
            lines += [f"seed {trial.seed}: {each}" for each in found[:VIOLATIONS_SHOWN]]
            if len(found) > VIOLATIONS_SHOWN:
                lines.append(f"seed {trial.seed}: and {len(found) - VIOLATIONS_SHOWN} more")
        missed = [str(edge) for edge in Edge if edge not in self.reached]
        lines += [
            f"edges       {len(self.reached)} of {len(Edge)}",
            f"kills       {sum(trial.kills for trial in self.trials)}",
            *(f"{promise:<11} {self.count(promise)}" for promise in PROMISES),
        ]
        if missed:
            lines.append(f"not reached: {', '.join(missed)}")
        worst = self.worst
        if worst is not None:
            lines += [f"the worst was seed {worst.seed}; again: {self._again(worst)}"]
        return "\n".join(lines)

    def _again(self, trial: Trial) -> str:
        return f"{self.again} --seed {trial.seed} --seeds 1 --keep"
