from __future__ import annotations

import pytest
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.packs.fleet.config import default_agent
from anchorwatch.packs.fleet.runtime import notify_human, save_report, schedule_next_check
from anchorwatch.packs.port import ToolContext

from tests.unit.fleet.sights import NOW_MS


def context(heartbeat_s: float = 300) -> ToolContext:
    return ToolContext(
        ref=SessionRef("default", "fleet"),
        call=CallId(1, 1, 1),
        turn_id="turn_1",
        agent=default_agent(),
        effect_key="key",
        attempt=1,
        deadline_s=30,
        now_ms=NOW_MS,
        heartbeat_s=heartbeat_s,
    )


def test_a_notification_is_handed_to_the_notifier_by_its_record() -> None:
    args = {"title": "Dead", "text": "All are dead", "severity": "critical"}

    assert notify_human(args).data == {"notify": args}


def test_a_check_before_the_heartbeat_is_scheduled() -> None:
    result = schedule_next_check({"in_minutes": 1.5, "reason": "see"}, context())

    assert result.data == {"scheduled": True, "next_check_at_ms": NOW_MS + 90_000}
    assert result.text == "Next check in 1.5 min, at 08:01:30Z: see"


@pytest.mark.parametrize("minutes", [5, 60])
def test_a_check_that_the_heartbeat_covers_is_not_scheduled_and_the_answer_says_so(minutes: float) -> None:
    result = schedule_next_check({"in_minutes": minutes, "reason": "see"}, context(heartbeat_s=300))

    assert result.data == {"scheduled": False}
    assert result.text == "Nothing was scheduled: the heartbeat looks every 5 min anyway, which is sooner"


def test_a_report_is_handed_over_as_an_artifact() -> None:
    result = save_report({"name": "incident-1.md", "text": "# Ünglück"})

    [artifact] = result.artifacts
    assert (artifact.name, artifact.media_type, artifact.data) == (
        "incident-1.md",
        "text/markdown",
        "# Ünglück".encode(),
    )
