"""Which of the calls that a model asks for become commands, and which are answered with an error. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anchorwatch.core.session.commands import PlannedCall
from anchorwatch.core.session.events import StepHead
from anchorwatch.core.session.state import Turn
from anchorwatch.core.tools import ToolSpec
from anchorwatch.models.port import ProposedCall
from anchorwatch.packs.port import Pack

from anchorwatch_planner.mind import Mind

REPEATED = "this very call was made in this turn"
ADVICE = "do something else, or end the turn"


def turns_in_circles(turn: Turn, head: StepHead, calls: Sequence[PlannedCall]) -> bool:
    """Whether this step and the one before ask for nothing but what was refused as repeated."""
    if calls or not head.rejected or not turn.steps or not turn.steps[-1].calls:
        return False
    before = turn.steps[-1].calls
    now = all(why.startswith(REPEATED) for *_, why in head.rejected)
    return now and all(call.state == "rejected" and call.text.startswith(REPEATED) for call in before)


def plan_calls(
    proposed: Sequence[ProposedCall], mind: Mind, turn: Turn
) -> tuple[tuple[PlannedCall, ...], tuple[tuple[int, str, str, str, str], ...]]:
    """(calls that become commands, calls that are answered with an error). A call's number is its position, from 1."""
    limits = mind.agent.limits
    made = [(call.tool, call.args) for step in turn.steps for call in step.calls if call.state != "rejected"]
    tools = {tool.name: tool for tool in mind.tools}
    planned: list[PlannedCall] = []
    rejected: list[tuple[int, str, str, str, str]] = []
    for n, call in enumerate(proposed, 1):
        if call.arguments is None:
            rejected.append(
                (n, call.name, call.label, call.raw, call.problem or "the arguments are no JSON object")
            )
        elif n > limits.calls_per_step_max:
            why = f"more than {limits.calls_per_step_max} calls in one step"
            rejected.append((n, call.name, call.label, "", why))
        elif made.count((call.name, call.arguments)) >= limits.repeats_max:
            rejected.append(
                (n, call.name, call.label, "", f"{REPEATED} {limits.repeats_max} times: {ADVICE}")
            )
        else:
            planned.append(_plan(n, call.name, call.arguments, call.label, mind.pack, tools.get(call.name)))
    return tuple(planned), tuple(rejected)


def _plan(
    n: int, name: str, args: Mapping[str, Any], label: str, pack: Pack, tool: ToolSpec | None
) -> PlannedCall:
    """The call as a command. A tool that is not granted or does not exist goes to the executor too: its refusal is recorded."""
    resource = pack.resource(name, args)
    if tool is None:
        return PlannedCall(n, name, args, label, "default", resource)
    verb = tool.intent(args) if tool.intent else ""
    return PlannedCall(n, name, args, label, tool.pool, resource, verb, tool.mutating)
