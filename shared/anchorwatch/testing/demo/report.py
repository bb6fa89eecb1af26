"""The outcome of the demo, as text and as data. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from anchorwatch.core.records import Kind
from anchorwatch.testing.demo.evidence import Incident
from anchorwatch.testing.harness import Check, Outcome


def outcome(
    seed: int, seconds: float, checks: Sequence[Check], evidence: Incident, kept: str | None = None
) -> Outcome:
    """The outcome of one run."""
    data = {"seed": seed, "seconds": seconds, **_data(evidence)}
    return Outcome(
        checks, data, ["", *(check.to_text() for check in checks), "", *_verdict(checks, seed, seconds)], kept
    )


def _verdict(checks: Sequence[Check], seed: int, seconds: float) -> list[str]:
    failed = [check.name for check in checks if not check.ok]
    if not failed:
        return [f"all {len(checks)} checks hold, after {seconds:.0f} s"]
    return [
        f"{len(failed)} of {len(checks)} checks failed: {'; '.join(failed)}",
        f"to inspect it: anchorwatch demo --keep --seed {seed}",
    ]


def _data(evidence: Incident) -> dict[str, Any]:
    return {
        "incident": dict(evidence.incident),
        "kills": [kill.to_json() for kill in evidence.kills],
        "claim": asdict(evidence.claim) if evidence.claim else None,
        "runs": [
            {
                "run_id": record.anchor.run_id,
                "outcome": record.anchor.last_run_outcome,
                "reason": record.reason,
                "sequence": record.sequence,
            }
            for record in evidence.history.of_kind(Kind.TURN_ENDED)
        ],
        "launches": {key: dict(starts) for key, starts in evidence.launched.items()},
        "notifications": dict(Counter(each.webhook_id for each in evidence.requests)),
        "anchor": {name: value for name, value in evidence.anchor.items() if name != "record"},
    }
