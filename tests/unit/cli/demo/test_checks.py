"""Each check of the demo holds for correct evidence, and only it fails for its violation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from anchorwatch.core.names import CallId
from anchorwatch.core.records import Kind
from anchorwatch.journal.history import Prompt
from anchorwatch.testing.demo.checks import check_all
from anchorwatch.testing.demo.evidence import Incident
from anchorwatch_fleet.jobs import Result

from tests.unit.cli.demo import incident
from tests.unit.cli.demo.incident import KEY, KILLED_PID, kept

Change = Callable[[Incident], Incident]


def failed(evidence: Incident) -> list[str]:
    return [check.name for check in check_all(evidence) if not check.ok]


def but(**changes: Any) -> Change:
    """The evidence with other fields."""
    return lambda evidence: replace(evidence, **changes)


def history(**changes: Any) -> Change:
    """The evidence with other lists in its history."""
    return lambda evidence: replace(evidence, history=replace(evidence.history, **changes))


def claim(**changes: Any) -> Change:
    """The evidence with other fields of the killed executor's claim."""

    def change(evidence: Incident) -> Incident:
        assert evidence.claim is not None
        return replace(evidence, claim=replace(evidence.claim, **changes))

    return change


def killed(service: str, **changes: Any) -> Change:
    """The evidence with other fields of one kill."""
    return lambda evidence: replace(
        evidence,
        kills=tuple(replace(each, **changes) if each.service == service else each for each in evidence.kills),
    )


def record(kind: str, run: int, **changes: Any) -> Change:
    """The evidence with one anchor record changed."""

    def change(evidence: Incident) -> Incident:
        anchors = tuple(
            replace(each, anchor=replace(each.anchor, **changes))
            if (each.kind, each.anchor.run_id) == (kind, run)
            else each
            for each in evidence.history.anchors
        )
        return replace(evidence, history=replace(evidence.history, anchors=anchors))

    return change


def anchor(**changes: Any) -> Change:
    """The evidence with another anchor in the KV bucket."""
    return lambda evidence: replace(evidence, anchor={**evidence.anchor, **changes})


def prompts(*shown: Prompt) -> Change:
    return history(prompts=shown)


LAUNCH, STOP = "launches", "nothing is stopped while jobs are queued"
WOKEN, TURN = "woken by the event", "the turn continues"
HELD, TAKEN, KEPT = "the killed executor held a claim", "the claim is taken over", "the journal is kept"
JOBS, ONCE = "each job has one verified result", "each launch happened once"
COMMANDS = "each command has one outcome"
TOLD, RUNS, INPUTS = "each notification arrived once", "run ids have no gaps", "no input is lost"
ANCHOR, PROMPT = "the anchor (KV anchors/default.fleet)", "the anchor of run n is in the prompt of run n + 1"


def came_back(service: str) -> str:
    return f"{service} is killed with kill -9 and replaced"


BROKEN: dict[str, tuple[str, Change]] = {
    "present demand was read as absent": (
        "the incident",
        but(incident={"demand_active": False, "demand_queued": False, "workers_dead": True}),
    ),
    "unknown is not false": (
        "the incident",
        but(incident={"demand_active": None, "demand_queued": True, "workers_dead": True}),
    ),
    "the heartbeat woke it": (
        WOKEN,
        history(inputs=(incident.tick(2, "check-1000"), incident.event(5), incident.tick(7, "check-2000"))),
    ),
    "another event woke it": (
        WOKEN,
        history(
            inputs=(
                incident.tick(2, "check-1000"),
                incident.event(5, "queue.waiting"),
                incident.tick(7, "tick-5"),
            )
        ),
    ),
    "it saw no emergency": (LAUNCH, history(commands=(incident.command(9, priority="normal"),))),
    "an instance was stopped": (STOP, but(stopped=("w-2",))),
    "the planner was not a process of the mesh": (came_back("planner"), killed("planner", known=False)),
    "the executor stayed away": (came_back("executor"), killed("executor", new_pid=None)),
    "the notifier did not die": (came_back("notifier"), killed("notifier", new_pid=81)),
    "the server stayed away": (came_back("nats"), killed("nats", new_pid=None)),
    "no planner took the turn over": (
        TURN,
        lambda each: history(
            anchors=tuple(one for one in each.history.anchors if one.kind != Kind.TAKEN_OVER)
        )(each),
    ),
    "the generation did not grow": (TURN, record(Kind.TAKEN_OVER, 2, generation=2)),
    "another process was killed": (HELD, claim(killed_pid=KILLED_PID + 1)),
    "the owner is another incarnation": (HELD, claim(presence_incarnation="z")),
    "the owner is unknown to the mesh": (HELD, claim(mesh_pids=(70,))),
    "the journal forgot": (KEPT, but(mark=replace(kept().mark, after_sha256=""))),  # type: ignore[type-var]
    "a job has no result": (JOBS, but(results=incident.results()[:1])),
    "a job has two results": (JOBS, but(results=(*incident.results(), incident.results()[0]))),
    "a proof does not hold": (
        JOBS,
        but(results=(incident.results()[0], Result("j-2", incident.results()[0].certificate, "w-4", 0.1))),
    ),
    "an instance was started twice": (
        ONCE,
        but(launched={**kept().launched, KEY: {"w-4": 2, "w-5": 1, "w-6": 1}}),
    ),
    "one more instance was started": (
        ONCE,
        but(launched={**kept().launched, KEY: {"w-4": 1, "w-5": 1, "w-6": 1, "w-7": 1}}),
    ),
    "a launch without a command": (ONCE, but(launched={**kept().launched, "stray": {"w-9": 1}})),
    "a command has no outcome": (
        COMMANDS,
        history(commands=(incident.command(9), incident.command(9, "recall", CallId(2, 2, 1)))),
    ),
    "a turn was not notified": (TOLD, but(requests=kept().requests[:1])),
    "a turn was notified under two ids": (
        TOLD,
        but(requests=(*kept().requests, incident.arrival("14-demo-cccc", 14))),
    ),
    "a notification was sent again although it was recorded": (
        TOLD,
        but(requests=(*kept().requests, incident.arrival("4-demo-aaaa", 4, at_ms=2_001))),
    ),
    "a notification was never accepted": (TOLD, but(requests=kept().requests[:2])),
    "sent again with other content": (
        TOLD,
        but(requests=(*kept().requests[:2], incident.arrival("14-demo-bbbb", 14, body_sha256="else"))),
    ),
    "a signature is wrong": (
        TOLD,
        but(requests=(incident.arrival("4-demo-aaaa", 4, signed=False), *kept().requests[1:])),
    ),
    "the journal has no record of the delivery": (TOLD, history(sent=())),
    "the anchor miscounts": (ANCHOR, anchor(run_count=3)),
    "the anchor holds an old fact": (
        ANCHOR,
        anchor(facts={"tasks_queued": 2, "workers_dead": False, "jobs_done": 2}),
    ),
    "the prompt showed an old anchor": (
        PROMPT,
        history(prompts=(incident.prompt(9, 2, 1, 1), incident.prompt(14, 2, 2, 4))),
    ),
    "the step says nothing of its prompt": (
        PROMPT,
        history(prompts=(replace(incident.prompt(9, 2, 1, 4), proof=None),)),
    ),
    "a run had no prompt": (PROMPT, history(prompts=(incident.prompt(4, 1, 1, 1),))),
}


def test_all_checks_hold_for_a_correct_run() -> None:
    assert failed(kept()) == []


@pytest.mark.parametrize("case", BROKEN)
def test_violation_fails_its_own_check_only(case: str) -> None:
    name, change = BROKEN[case]
    assert failed(change(kept())) == [name]


ENTANGLED: dict[str, tuple[tuple[str, ...], Change]] = {
    "a run id is left out": ((RUNS, TURN, WOKEN, PROMPT), record(Kind.ACQUIRED, 2, run_id=3)),
    "two runs consumed an input": ((INPUTS, WOKEN), record(Kind.ACQUIRED, 2, inputs_through=0)),
    "no run consumed an input": (
        (INPUTS,),
        lambda each: history(inputs=(*each.history.inputs, incident.event(20)))(each),
    ),
    "no executor took the claim over": ((TAKEN,), history(claims=(incident.claim(10, "x", 1),))),
    "the claim was taken over under another key": (
        (TAKEN, ONCE),
        history(claims=(incident.claim(10, "x", 1), incident.claim(11, "y", 2, key="other"))),
    ),
    "the dead owner's outcome counts": ((HELD, TAKEN), history(outcomes=(incident.outcome(13, under=10),))),
    "the outcome is unknown": (
        (LAUNCH, TAKEN),
        history(outcomes=(incident.outcome(13, under=11, state="unknown"),)),
    ),
    "the last run failed": ((ANCHOR,), record(Kind.TURN_ENDED, 2, last_run_outcome="failed")),
    "a command has two outcomes": (
        (TAKEN, COMMANDS),
        history(outcomes=(incident.outcome(13, under=11), incident.outcome(14, under=11))),
    ),
    "a stop was decided": (
        (STOP,),
        history(commands=(incident.command(9), incident.command(9, "stop_instance", CallId(2, 2, 1)))),
    ),
    "there was a single run": ((RUNS,), record(Kind.ACQUIRED, 1, run_id=7)),
}


@pytest.mark.parametrize("case", ENTANGLED)
def test_violation_fails_the_checks_that_depend_on_it(case: str) -> None:
    names, change = ENTANGLED[case]
    assert set(failed(change(kept()))) >= set(names)


def test_empty_evidence_fails_every_check() -> None:
    assert [check.name for check in check_all(Incident()) if check.ok] == []


def test_every_check_fails_in_some_case() -> None:
    broken = {name for name, _ in BROKEN.values()} | {
        name for names, _ in ENTANGLED.values() for name in names
    }
    assert broken >= {check.name for check in check_all(kept())}


def test_unrecorded_notification_may_repeat_under_its_id() -> None:
    again = but(requests=(*kept().requests, incident.arrival("14-demo-bbbb", 14, at_ms=3_900)))
    assert failed(again(kept())) == []
