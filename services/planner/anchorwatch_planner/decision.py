"""The pure decisions about a step: which calls become commands, whether the observation is fresh, when to check again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from anchorwatch.core.anchor import RunOutcome
from anchorwatch.core.facts import Observation
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import PlannedCall
from anchorwatch.core.session.events import StepHead
from anchorwatch.core.session.pacing import RETRY_MS, retry_ms
from anchorwatch.core.session.state import Turn
from anchorwatch.core.times import from_iso
from anchorwatch.core.tools import ToolSpec
from anchorwatch.models.port import ProposedCall
from anchorwatch.packs.port import Pack

from anchorwatch_planner.runtimes import AgentRuntime

REPEATED = "this very call was made in this turn"
ADVICE = "do something else, or end the turn"


def turns_in_circles(turn: Turn, head: StepHead, calls: Sequence[PlannedCall]) -> bool:
    """Whether this step and the one before ask only for calls that were refused as repeated."""
    if calls or not head.rejected or not turn.steps or not turn.steps[-1].calls:
        return False
    before = turn.steps[-1].calls
    now = all(why.startswith(REPEATED) for *_, why in head.rejected)
    return now and all(call.state == "rejected" and call.text.startswith(REPEATED) for call in before)


def plan_calls(
    proposed: Sequence[ProposedCall], runtime: AgentRuntime, turn: Turn
) -> tuple[tuple[PlannedCall, ...], tuple[tuple[int, str, str, str, str], ...]]:
    """(calls that become commands, calls that are rejected with an error). A call's number is its position, from 1."""
    limits = runtime.agent.limits
    made = [(call.tool, call.args) for step in turn.steps for call in step.calls if call.state != "rejected"]
    tools = {tool.name: tool for tool in runtime.tools}
    planned: list[PlannedCall] = []
    rejected: list[tuple[int, str, str, str, str]] = []
    for n, call in enumerate(proposed, 1):
        if call.arguments is None:
            rejected.append(
                (n, call.name, call.label, call.raw, _why_malformed(call, turn, limits.repeats_max))
            )
        elif n > limits.calls_per_step_max:
            why = f"more than {limits.calls_per_step_max} calls in one step"
            rejected.append((n, call.name, call.label, "", why))
        elif made.count((call.name, call.arguments)) >= limits.repeats_max:
            rejected.append(
                (n, call.name, call.label, "", f"{REPEATED} {limits.repeats_max} times: {ADVICE}")
            )
        else:
            planned.append(
                _plan(n, call.name, call.arguments, call.label, runtime.pack, tools.get(call.name))
            )
    return tuple(planned), tuple(rejected)


def _why_malformed(call: ProposedCall, turn: Turn, repeats_max: int) -> str:
    """Why a call without readable arguments does not run. A repeated one is answered like any repeated call."""
    problem = call.problem or "the arguments are not a JSON object"
    made = sum(
        each.state == "rejected"
        and each.tool == call.name
        and each.text.endswith(call.raw)
        and problem in each.text
        for step in turn.steps
        for each in step.calls
    )
    if made < repeats_max:
        return problem
    return f"{REPEATED} {made} times with invalid arguments ({problem}): {ADVICE}"


def _plan(
    n: int, name: str, args: Mapping[str, Any], label: str, pack: Pack, tool: ToolSpec | None
) -> PlannedCall:
    """The call as a command. The executor also gets tools that are not granted or do not exist, and records their refusal."""
    resource = pack.resource(name, args)
    if tool is None:
        return PlannedCall(n, name, args, label, "default", resource)
    verb = tool.intent(args) if tool.intent else ""
    return PlannedCall(n, name, args, label, tool.pool, resource, verb, tool.mutating)


OBSERVATIONS_MAX = 3
"""How often a step is decided at most before it is committed on the last observation; the executor checks the age again."""


def too_old(
    calls: Iterable[PlannedCall], tools: Sequence[ToolSpec], observation: Observation, now_ms: int
) -> bool:
    """Whether a call that changes something must cite a newer observation than this, by the limit of its tool."""
    limits = {tool.name: tool.observation_age_max_s for tool in tools if tool.mutating}
    age_s = (now_ms - observation.at_ms) / 1000
    return any(call.mutating and age_s > limits.get(call.tool, age_s) for call in calls)


def shows_the_same(before: Observation, now: Observation) -> bool:
    """Whether a decision on ``before`` also holds for ``now``. An observation that failed equals no other."""
    return bool(now.digest) and now.digest == before.digest


RETRY_S = RETRY_MS / 1000
AT_ONCE_MS = 1_000


def next_check_ms(state: SessionState, outcome: RunOutcome, heartbeat_s: float, now_ms: int) -> int:
    """The next check after a turn: the heartbeat; sooner where the turn asked for it, or did not get its work done.

    The turn's last request counts. An earlier check that is still scheduled stays, unless the turn asked for another: an
    unrelated wake-up does not delay what an earlier turn wanted to see. A turn without progress is retried after 15 s, then 30,
    60, …, up to the heartbeat, so that a session that cycles slows down.
    """
    at_ms = now_ms + round(heartbeat_s * 1000)
    calls = [call for step in (state.turn.steps if state.turn else ()) for call in step.calls]
    wanted = [call.data.get("next_check_at_ms") for call in calls if call.state == "succeeded"]
    asked = [value for value in wanted if isinstance(value, int)]
    scheduled_ms = _scheduled_ms(state)
    if asked:
        # A check that was scheduled for a time during the turn runs now.
        at_ms = min(at_ms, max(asked[-1], now_ms + AT_ONCE_MS))
    elif scheduled_ms > now_ms:
        at_ms = min(at_ms, scheduled_ms)
    if outcome in ("unresolved", "failed", "over_budget"):
        stuck = state.anchor.runs_without_progress if state.anchor else 0
        at_ms = min(at_ms, now_ms + retry_ms(stuck))
    return at_ms


def _scheduled_ms(state: SessionState) -> int:
    check = state.anchor.next_check_at if state.anchor else None
    return from_iso(check) if check else 0
