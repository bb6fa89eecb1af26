"""An agent asks to be woken: bounded, and with an answer that says what will be."""

from __future__ import annotations

from typing import Any

import pytest
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.packs.next_check import schedule_next_check
from anchorwatch.packs.port import NeverDone, ToolContext

NOW_MS = 1_773_770_400_000  # 2026-03-17T18:00:00Z


def ask(when: str, heartbeat_s: float = 300) -> tuple[str, dict[str, Any]]:
    context = ToolContext(
        ref=SessionRef("default", "s"), call=CallId(1, 1, 1), turn_id="turn_1", agent=AgentSpec(name="a", pack="p"),
        effect_key="key", attempt=1, deadline_s=30, now_ms=NOW_MS, heartbeat_s=heartbeat_s,
    )  # fmt: skip
    result = schedule_next_check({"when": when, "reason": "see"}, context)
    return result.text, dict(result.data)


@pytest.mark.parametrize(
    "when",
    [
        "1.5 min",
        "1.5",
        "1.5m",
        "in 1.5 minutes",
        "90 s",
        "90 Seconds",
        "0.025 h",
        "2026-03-17T18:01:30Z",
        " 2026-03-17T19:01:30+01:00 ",
    ],
)
def test_check_before_the_heartbeat_is_scheduled(when: str) -> None:
    text, data = ask(when)
    assert data == {"scheduled": True, "next_check_at_ms": NOW_MS + 90_000}
    assert text == "Next check in 1.5 min, at 18:01:30Z: see"


@pytest.mark.parametrize("when", ["5 min", "1 h", "2026-03-17T18:05:00Z"])
def test_check_covered_by_the_heartbeat_is_not_scheduled(when: str) -> None:
    text, data = ask(when)
    assert data == {"scheduled": False}
    assert text == "Nothing was scheduled: the heartbeat looks every 5 min anyway, which is sooner"


def test_check_requested_too_soon_comes_a_moment_later() -> None:
    assert ask("0.001 min")[1]["next_check_at_ms"] == NOW_MS + 5_000
    assert ask("2026-03-17T18:00:01Z")[1]["next_check_at_ms"] == NOW_MS + 5_000


@pytest.mark.parametrize(
    ("when", "why"),
    [
        ("2026-03-17T17:59:00Z", "is past: it is 2026-03-17T18:00:00Z"),
        ("2026-03-18T18:01:00Z", "more than 24 hours away"),
        ("1441 min", "more than 24 hours away"),
        ("999999999 h", "more than 24 hours away"),
        ("2026-03-17T18:01:30", "offset"),
        ("soon", "such as 2 min"),
        ("-2 min", "such as 2 min"),
        ("", "such as 2 min"),
    ],
)
def test_unschedulable_check_is_refused_with_the_reason(when: str, why: str) -> None:
    with pytest.raises(NeverDone) as caught:
        ask(when, heartbeat_s=1e9)
    assert why in str(caught.value)
