"""What a turn has come to. "The model finished" is not success."""

from __future__ import annotations

from anchorwatch.core.anchor import RunOutcome
from anchorwatch.core.session.state import Call, Turn

_NO_EFFECT = frozenset({"failed", "refused", "rejected", "withdrawn"})


def judge(
    turn: Turn, emergency: str | None, acting_tools: frozenset[str], no_progress: str | None = None
) -> tuple[RunOutcome, str]:
    """The outcome of a turn that the model has ended, and why.

    ``emergency``: the open one, as text (None: none). ``acting_tools``: tools that change the world outside; only these count
    as having done something about an emergency. ``no_progress``: why the pack says that the latest actions led to nothing.
    """
    calls = [call for step in turn.steps for call in step.calls]
    acted = [call for call in calls if call.tool in acting_tools]
    done = [call for call in acted if _was_done(call)]
    if emergency and not done:
        tried = f"; {_say(acted)}" if acted else ""
        return "unresolved", f"{emergency}, and no action was taken{tried}"
    unknown = [call for call in acted if call.state == "unknown"]
    if unknown:
        return "unresolved", f"the outcome of {unknown[0].tool} is unknown"
    if no_progress:
        return "unresolved", f"{_say(acted)}, but {no_progress}" if acted else no_progress
    if done:
        return "success", _say(done)
    if acted and all(call.state in _NO_EFFECT or call.state == "resolved" for call in acted):
        return "failed", _say(acted)
    return "no_action", "nothing had to be done"


def _was_done(call: Call) -> bool:
    settled = call.state == "resolved" and call.data.get("verdict") != "not_done"
    return call.state == "succeeded" or settled


def _say(calls: list[Call]) -> str:
    return ", ".join(f"{call.tool} {call.state}" for call in calls[:5])
