"""When a session looks again by itself. Pure."""

from __future__ import annotations

from anchorwatch.core.anchor import RunOutcome
from anchorwatch.core.session import SessionState

RETRY_S = 15.0


def next_check_ms(state: SessionState, outcome: RunOutcome, heartbeat_s: float, now_ms: int) -> int:
    """The next check after a turn: the heartbeat; sooner where the turn asked for it, or did not get its work done.

    A turn without progress is tried again after 15 s, then 30, 60, …, up to the heartbeat, so that a session
    that cycles slows down.
    """
    at_ms = now_ms + round(heartbeat_s * 1000)
    calls = [call for step in (state.turn.steps if state.turn else ()) for call in step.calls]
    wanted = [call.data.get("next_check_at_ms") for call in calls if call.state == "succeeded"]
    asked = [value for value in wanted if isinstance(value, int) and value > now_ms]
    if asked:
        at_ms = min(at_ms, asked[-1])
    if outcome in ("unresolved", "failed", "over_budget"):
        stuck = state.anchor.runs_without_progress if state.anchor else 0
        at_ms = min(at_ms, now_ms + round(RETRY_S * 1000 * 2 ** min(stuck, 16)))
    return at_ms
