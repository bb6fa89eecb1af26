"""The demo's checks: evidence in, what was expected and what was seen out. Pure.

- `answer`: the incident, and what the agent did about it
- `deaths`: who was killed, who came back, and what went on
- `counts`: nothing lost, nothing twice
- `anchors`: what is remembered
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
        *(deaths.came_back(service, kills.get(service)) for service in KILLED),
        deaths.turn_went_on(evidence),
        deaths.claim_matched(evidence),
        deaths.claim_taken_up(evidence),
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
