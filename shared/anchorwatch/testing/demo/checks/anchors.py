"""The anchor's contents, and their presence in the next prompt. Pure."""

from __future__ import annotations

from anchorwatch.core.records import Kind
from anchorwatch.testing.demo.checks.helpers import facts, some
from anchorwatch.testing.demo.evidence import Incident
from anchorwatch.testing.harness import Check


def anchor_says(evidence: Incident) -> Check:
    """The anchor in the KV bucket has the number of runs, the last outcome, and the current facts."""
    ends = evidence.history.of_kind(Kind.TURN_ENDED)
    last = ends[-1].anchor if ends else None
    wanted = {
        "run_count": len(ends),
        "run_id": last.run_id if last else None,
        "last_run_outcome": last.last_run_outcome if last else None,
        "status": "idle",
        "facts.tasks_queued": 0,
        "facts.workers_dead": False,
        "facts.jobs_done": len(evidence.jobs),
    }
    held = evidence.anchor.get("facts") or {}
    seen = {
        name: held.get(name[6:]) if name.startswith("facts.") else evidence.anchor.get(name)
        for name in wanted
    }
    good = last is not None and last.last_run_outcome in ("success", "no_action")
    return Check(f"the anchor ({evidence.anchor_key})", facts(wanted), facts(seen), good and seen == wanted)


def anchor_was_in_prompt(evidence: Incident) -> Check:
    """Each later run's prompts name the newest previous anchor by sequence and digest; it includes the last run's end."""
    history = evidence.history
    shown: list[str] = []
    wrong: list[str] = []
    runs = [each.anchor.run_id for each in history.of_kind(Kind.ACQUIRED)]
    for run in runs[1:]:
        ended, prompts = history.ended(run - 1), [each for each in history.prompts if each.run == run]
        if ended is None or not prompts:
            wrong.append(f"run {run} has {'no prompt' if ended else 'no ended run before it'}")
        for prompt in prompts if ended else ():
            newest = history.shown(prompt.sequence)
            proof = prompt.proof
            fits = (
                ended is not None
                and newest is not None
                and proof is not None
                and newest.sequence >= ended.sequence
                and (proof.anchor_revision, proof.anchor_sha256) == (newest.sequence, newest.digest)
            )
            named = f"{proof.anchor_revision} ({proof.anchor_sha256[:12]})" if proof else "no anchor"
            (shown if fits else wrong).append(f"run {run} step {prompt.step} shows {named}")
    expected = (
        "each prompt of run n + 1 names the anchor record that ended run n (or a later one), and its digest"
    )
    seen = f"{some(shown)}; wrong: {some(wrong)}"
    return Check(
        "the anchor of run n is in the prompt of run n + 1", expected, seen, bool(shown) and not wrong
    )
