"""An agent asks to be woken: bounded, and with an answer that says what will be."""

from __future__ import annotations

from typing import Any

import pytest
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.packs.next_check import schedule_next_check
from anchorwatch.packs.port import NeverDone, ToolContext

NOW_MS = 1_773_770_400_000  # 2026-03-17T18:00:00Z


def ask(heartbeat_s: float = 300, **args: Any) -> tuple[str, dict[str, Any]]:
    context = ToolContext(
        ref=SessionRef("default", "s"), call=CallId(1, 1, 1), turn_id="turn_1", agent=AgentSpec(name="a", pack="p"),
        effect_key="key", attempt=1, deadline_s=30, now_ms=NOW_MS, heartbeat_s=heartbeat_s,
    )  # fmt: skip
    result = schedule_next_check({"reason": "see", **args}, context)
    return result.text, dict(result.data)


@pytest.mark.parametrize(
    "when", [{"in_minutes": 1.5}, {"at": "2026-03-17T18:01:30Z"}, {"at": "2026-03-17T19:01:30+01:00"}]
)
def test_a_check_before_the_heartbeat_is_scheduled(when: dict[str, Any]) -> None:
    text, data = ask(**when)
    assert data == {"scheduled": True, "next_check_at_ms": NOW_MS + 90_000}
    assert text == "Next check in 1.5 min, at 18:01:30Z: see"


@pytest.mark.parametrize("when", [{"in_minutes": 5}, {"in_minutes": 60}, {"at": "2026-03-17T18:05:00Z"}])
def test_a_check_that_the_heartbeat_covers_is_not_scheduled_and_the_answer_says_so(
    when: dict[str, Any],
) -> None:
    text, data = ask(**when)
    assert data == {"scheduled": False}
    assert text == "Nothing was scheduled: the heartbeat looks every 5 min anyway, which is sooner"


def test_what_is_asked_for_too_soon_comes_a_moment_later() -> None:
    assert ask(in_minutes=0.001)[1]["next_check_at_ms"] == NOW_MS + 5_000
    assert ask(at="2026-03-17T18:00:01Z")[1]["next_check_at_ms"] == NOW_MS + 5_000


@pytest.mark.parametrize(
    ("when", "why"),
    [
        ({}, "in_minutes, or at"),
        ({"in_minutes": 1, "at": "2026-03-17T18:01:30Z"}, "not both"),
        ({"at": "2026-03-17T17:59:00Z"}, "is past: it is 2026-03-17T18:00:00Z"),
        ({"at": "2026-03-18T18:01:00Z"}, "more than 24 hours away"),
        ({"at": "2026-03-17T18:01:30"}, "offset"),
        ({"at": "soon"}, "ISO 8601"),
    ],
)
def test_what_cannot_be_scheduled_is_refused_and_says_why(when: dict[str, Any], why: str) -> None:
    with pytest.raises(NeverDone) as told:
        ask(heartbeat_s=1e9, **when)
    assert why in str(told.value)
