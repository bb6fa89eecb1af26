"""The incident, and the agent's reaction. Pure."""

from __future__ import annotations

from collections import Counter

from anchorwatch.testing.demo.checks.helpers import (
    STOP,
    counted,
    facts,
    first_launch,
    launches,
    named,
    some,
    waker_of,
)
from anchorwatch.testing.demo.evidence import Incident
from anchorwatch.testing.harness import Check

INCIDENT = {"demand_active": False, "demand_queued": True, "workers_dead": True}
DEAD = "fleet.instance.dead"


def incident_was_there(evidence: Incident) -> Check:
    """Work is queued, no worker runs, the workers are dead: three facts, each with its own value."""
    seen = {name: evidence.incident.get(name) for name in INCIDENT}
    return Check("the incident", facts(INCIDENT), facts(seen), seen == INCIDENT)


def woken_by_event(evidence: Incident) -> Check:
    """An event woke the launching turn, and no input of it came from the heartbeat."""
    history = evidence.history
    launch = first_launch(history)
    taken = history.taken(launch.call.run) if launch else ()
    waker = waker_of(history, launch.call.run, taken) if launch else None
    checks = [each for each in taken if each.input_id.startswith("check-")]
    seen = "no turn launched"
    if launch is not None:
        kinds = Counter(named(each) for each in taken)
        seen = f"run {launch.call.run} was woken by {named(waker) if waker else 'an unknown input'}"
        seen += f"; it consumed {counted(kinds)}"
    ok = waker is not None and named(waker) == DEAD and waker.priority == 0 and not checks
    expected = f"the launching run is woken by {DEAD} (P0), not by the heartbeat ({evidence.heartbeat_s:g} s)"
    return Check("woken by the event", expected, seen, ok)


def launched(evidence: Incident) -> Check:
    """The agent launched, with the priority of an emergency."""
    history = evidence.history
    done = []
    for command in launches(history):
        outcome = history.outcome_of(command.call)
        state = outcome.outcome.state if outcome else "without an outcome"
        priority = command.decided.args.get("launch_priority")
        done.append((f"{command.call}: {command.decided.args.get('count')} ({priority}), {state}", state))
    first = first_launch(history)
    ok = (
        bool(done)
        and all(state == "succeeded" for _, state in done)
        and first is not None
        and first.decided.args.get("launch_priority") == "emergency"
    )
    seen = "; ".join(text for text, _ in done) or "no launch"
    return Check("launches", "an emergency launch that succeeds", seen, ok)


def nothing_stopped(evidence: Incident) -> Check:
    """Neither the journal nor the yard has a stop."""
    asked = [str(each.call) for each in evidence.history.commands if each.decided.tool == STOP]
    stopped = "unknown" if evidence.stopped is None else some(evidence.stopped)
    seen = f"stops decided: {some(asked)}; instances stopped: {stopped}"
    expected = "stops decided: none; instances stopped: none"
    return Check("nothing is stopped while jobs are queued", expected, seen, seen == expected)
