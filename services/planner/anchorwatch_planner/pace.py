"""When a session looks again by itself. Pure."""

from __future__ import annotations

from anchorwatch.core.anchor import RunOutcome
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.pacing import RETRY_MS, retry_ms
from anchorwatch.core.times import from_iso

RETRY_S = RETRY_MS / 1000
AT_ONCE_MS = 1_000


def next_check_ms(state: SessionState, outcome: RunOutcome, heartbeat_s: float, now_ms: int) -> int:
    """The next check after a turn: the heartbeat; sooner where the turn asked for it, or did not get its work done.

    The last that the turn asked for counts. A check that was due earlier stays, unless the turn asked for another: what an
    earlier turn wanted to see is not put off by a wake that had nothing to do with it. A turn without progress is tried again
    after 15 s, then 30, 60, …, up to the heartbeat, so that a session that cycles slows down.
    """
    at_ms = now_ms + round(heartbeat_s * 1000)
    calls = [call for step in (state.turn.steps if state.turn else ()) for call in step.calls]
    wanted = [call.data.get("next_check_at_ms") for call in calls if call.state == "succeeded"]
    asked = [value for value in wanted if isinstance(value, int)]
    standing_ms = _standing_ms(state)
    if asked:
        # What fell due while the turn went on is looked at now that it is over.
        at_ms = min(at_ms, max(asked[-1], now_ms + AT_ONCE_MS))
    elif standing_ms > now_ms:
        at_ms = min(at_ms, standing_ms)
    if outcome in ("unresolved", "failed", "over_budget"):
        stuck = state.anchor.runs_without_progress if state.anchor else 0
        at_ms = min(at_ms, now_ms + retry_ms(stuck))
    return at_ms


def _standing_ms(state: SessionState) -> int:
    standing = state.anchor.next_check_at if state.anchor else None
    return from_iso(standing) if standing else 0
