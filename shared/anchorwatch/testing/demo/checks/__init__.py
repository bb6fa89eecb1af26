"""The demo's checks: from evidence to expected and seen. Pure.

- `answer`: the incident, and the agent's reaction
- `deaths`: kills, replacements, and continued work
- `counts`: nothing lost, nothing duplicated
- `anchors`: the session's memory
"""

from __future__ import annotations

from anchorwatch.testing.demo.checks import anchors, answer, counts, deaths
from anchorwatch.testing.demo.evidence import Incident
from anchorwatch.testing.harness import Check

KILLED = ("planner", "executor", "notifier", "nats")

__all__ = ["Check", "check_all"]


def check_all(evidence: Incident) -> list[Check]:
    """Every check, in the order of the story."""
    kills = {kill.service: kill for kill in evidence.kills}
    return [
        answer.incident_was_there(evidence),
        answer.woken_by_event(evidence),
        answer.launched(evidence),
        answer.nothing_stopped(evidence),
        *(deaths.replaced(service, kills.get(service)) for service in KILLED),
        deaths.turn_continued(evidence),
        deaths.claim_matched(evidence),
        deaths.claim_taken_over(evidence),
        deaths.journal_kept(evidence),
        counts.jobs_proved(evidence),
        counts.launched_once(evidence),
        counts.one_outcome_each(evidence),
        counts.notified_once(evidence),
        counts.run_ids_gapless(evidence),
        counts.inputs_consumed(evidence),
        anchors.anchor_says(evidence),
        anchors.anchor_was_in_prompt(evidence),
    ]
