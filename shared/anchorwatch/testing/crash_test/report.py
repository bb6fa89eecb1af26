"""The outcome of a crash test, as text and as data. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, get_args

from anchorwatch.edges import Edge
from anchorwatch.testing.checks.evidence import Promise
from anchorwatch.testing.crash_test import tried
from anchorwatch.testing.crash_test.trial import Trial
from anchorwatch.testing.harness import Check, Outcome

PROMISES: tuple[Promise, ...] = get_args(Promise)
VIOLATIONS_SHOWN = 10


def outcome(pack: str, agent: str, trials: Sequence[Trial], again: str, kept: str | None = None) -> Outcome:
    """The outcome of all seeds. ``again``: the command that repeats the test."""
    counts: dict[str, int] = {promise: sum(trial.count(promise) for trial in trials) for promise in PROMISES}
    crashes = [crash for trial in trials for crash in trial.crashes]
    died_at = {edge for trial in trials for edge in trial.reached if trial.reached[edge]}
    tools = tried.summed(trial.tried for trial in trials)
    checks = [
        Check("every seed ran", "1 or more", str(len(trials)), ok=bool(trials)),
        *(_none(f"nothing is {promise}", count) for promise, count in counts.items()),
        _none("no process ends by itself", len(crashes)),
        *tried.checks(tools, [trial.commands for trial in trials], died_at),
    ]
    reached = [edge for edge in Edge if edge in died_at]
    missed = [edge for edge in Edge if edge not in died_at]
    unchecked = tried.not_checked(tools, sum(trial.events for trial in trials))
    kills = sum(trial.kills for trial in trials)
    worst = _worst(trials)
    repeat = f"{again} --seed {worst.seed} --seeds 1 --keep" if worst else ""
    data: dict[str, Any] = {
        "pack": pack,
        "agent": agent,
        "edges": {"reached": [str(edge) for edge in reached], "missed": [str(edge) for edge in missed]},
        "kills": kills,
        **counts,
        "crashes": crashes,
        "tools": [tool.to_json() for tool in tools],
        "not_checked": unchecked,
        "worst": {"seed": worst.seed, "again": repeat} if worst else None,
        "seeds": [_seed(trial) for trial in trials],
    }
    lines = [line for trial in trials for line in _findings(trial)]
    lines += [
        f"edges       {len(reached)} of {len(Edge)}",
        f"kills       {kills}",
        *(f"{promise:<11} {count}" for promise, count in counts.items()),
    ]
    if missed:
        lines.append(f"not reached: {', '.join(map(str, missed))}")
    lines += [f"NOT CHECKED: {each}" for each in unchecked]
    lines += [
        f"FAILED: {check.name}: expected {check.expected}; seen: {check.seen}"
        for check in checks
        if not check.ok
    ]
    if worst:
        lines.append(f"worst seed: {worst.seed}; repeat it with: {repeat}")
    return Outcome(checks, data, lines, kept)


def _none(name: str, count: int) -> Check:
    return Check(name, "0", str(count), ok=not count)


def _worst(trials: Sequence[Trial]) -> Trial | None:
    """The seed with the most violations; None without one."""
    broken = [trial for trial in trials if not trial.ok]
    return max(
        broken, key=lambda trial: (len(trial.violations), len(trial.crashes), -trial.seed), default=None
    )


def _seed(trial: Trial) -> dict[str, Any]:
    return {
        "seed": trial.seed,
        "seconds": round(trial.seconds, 1),
        "kills": trial.kills,
        "edges": len(trial.reached),
        "turns": trial.turns,
        "commands": trial.commands,
        "violations": [asdict(each) for each in trial.violations],
    }


def _findings(trial: Trial) -> list[str]:
    found = [*map(str, trial.violations), *(f"crashed: {crash}" for crash in trial.crashes)]
    lines = [f"seed {trial.seed}: {each}" for each in found[:VIOLATIONS_SHOWN]]
    if len(found) > VIOLATIONS_SHOWN:
        lines.append(f"seed {trial.seed}: and {len(found) - VIOLATIONS_SHOWN} more")
    return lines
