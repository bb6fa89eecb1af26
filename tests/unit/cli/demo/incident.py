"""Evidence of a correct demo: two runs, a claim that another executor takes over, two jobs, two notifications."""

from __future__ import annotations

from functools import cache
from typing import Any

from anchorwatch.core.anchor import Anchor, Fence, PromptProof, TurnMark
from anchorwatch.core.effect.state import Claimed, Outcome, Owner
from anchorwatch.core.names import CallId
from anchorwatch.core.records import Kind
from anchorwatch.core.session.events import CommandDecided
from anchorwatch.core.session.state import Input
from anchorwatch.journal.history import (
    AnchorRecord,
    Claim,
    Command,
    DeliveryRecord,
    History,
    OutcomeRecord,
    Prompt,
)
from anchorwatch.testing.demo.evidence import HeldClaim, Incident, JournalMark
from anchorwatch.testing.harness import Kill
from anchorwatch.testing.receiver import Arrival
from anchorwatch_fleet.jobs import Result, make_job, prove

CALL = CallId(2, 1, 1)
KEY = "aw-default-fleet-2-1-1"
JOBS = ("j-1", "j-2")
KILLED_PID, NEW_PID = 71, 72


def anchor(run: int, generation: int, **changes: Any) -> Anchor:
    return Anchor(
        workspace="default", session="fleet", agent="keeper@1", run_id=run, generation=generation, **changes
    )


def turn(woken_by: int, through: int) -> TurnMark:
    return TurnMark(
        id="turn_x", started_at="2026-03-17T18:56:43+00:00", woken_by=woken_by, inputs_through=through
    )


def second(generation: int, execution_id: str) -> Anchor:
    """During run 2."""
    return anchor(
        2, generation, execution_id=execution_id, turn=turn(7, 7),
        fence=Fence(run=2), run_count=1, last_run_id=1, last_run_outcome="no_action", inputs_through=2,
    )  # fmt: skip


def changed(sequence: int, kind: Kind, after: Anchor) -> AnchorRecord:
    return AnchorRecord(sequence, kind, after, digest=f"digest-{sequence}")


def event(sequence: int, type_: str = "instance.dead") -> Input:
    return Input(sequence, f"ev-{sequence}", "event", 0, 1_000, source="fleet", type=type_)


def tick(sequence: int, input_id: str) -> Input:
    return Input(sequence, input_id, "tick", 1, 1_000, type=input_id.partition("-")[0])


def prompt(sequence: int, run: int, step: int, revision: int) -> Prompt:
    proof = PromptProof(
        anchor_revision=revision, anchor_sha256=f"digest-{revision}", sha256="x", tokens=9, model="rules"
    )
    return Prompt(sequence, run, step, proof)


def command(
    sequence: int, tool: str = "launch_instances", call: CallId = CALL, priority: str = "emergency"
) -> Command:
    args = {"count": 3, "launch_priority": priority}
    return Command(
        sequence,
        CommandDecided(call, "turn_x", 2, "keeper@1", "default", tool, args, "fleet", "call_1", "d", 1),
    )


def claim(sequence: int, incarnation: str, attempt: int, key: str = KEY) -> Claim:
    return Claim(sequence, CALL, Claimed(Owner("executor-1", incarnation), attempt, key))


def outcome(sequence: int, under: int, state: Any = "succeeded") -> OutcomeRecord:
    return OutcomeRecord(
        sequence, Outcome(CALL, "launch_instances", state, "Launched 3", {}, claim_sequence=under)
    )


def kept_history() -> History:
    """Run 1 is the first check; run 2 reacts to a death, and its planner and executor are replaced."""
    first_end = anchor(
        1, 1, fence=Fence(run=2), run_count=1, last_run_id=1, last_run_outcome="no_action", inputs_through=2
    )
    last_end = anchor(
        2, 3, fence=Fence(run=3), run_count=2, last_run_id=2, last_run_outcome="success", inputs_through=7,
        facts={"tasks_queued": 0, "workers_dead": False, "jobs_done": 2},
    )  # fmt: skip
    return History(
        anchors=(
            changed(1, Kind.CREATED, anchor(0, 0)),
            changed(3, Kind.ACQUIRED, anchor(1, 1, execution_id="planner-1:a", turn=turn(2, 2))),
            changed(4, Kind.TURN_ENDED, first_end),
            changed(8, Kind.ACQUIRED, second(2, "planner-1:a")),
            changed(12, Kind.TAKEN_OVER, second(3, "planner-1:b")),
            changed(14, Kind.TURN_ENDED, last_end),
        ),
        inputs=(tick(2, "check-1000"), event(5), event(6, "queue.waiting"), tick(7, "tick-5")),
        prompts=(prompt(4, 1, 1, 1), prompt(9, 2, 1, 4), prompt(14, 2, 2, 4)),
        commands=(command(9),),
        claims=(claim(10, "x", 1), claim(11, "y", 2)),
        outcomes=(outcome(13, under=11),),
        sent=(
            DeliveryRecord(5, 2_000, "4-demo-aaaa", "sent"),
            DeliveryRecord(16, 4_000, "14-demo-bbbb", "sent"),
        ),
        last_sequence=16,
    )


@cache
def primes() -> dict[str, int]:
    return {job: make_job(job, "small").prime for job in JOBS}


@cache
def results() -> tuple[Result, ...]:
    return tuple(Result(job, prove(make_job(job, "small")), "w-4", 0.1) for job in JOBS)


def arrival(webhook_id: str, record: int, **changes: Any) -> Arrival:
    return Arrival(
        **{
            "webhook_id": webhook_id,
            "record": record,
            "at_ms": 1_500 if record == 4 else 3_500,
            "body_sha256": f"body-{record}",
            "signed": True,
            "accepted": True,
            **changes,
        }
    )


def kill(service: str, pid: int) -> Kill:
    return Kill(f"{service}-1", pid=pid, known=True, during="at work", new_pid=pid + 1, back_s=0.5)


def kept() -> Incident:
    """The evidence of a correct demo."""
    return Incident(
        incident={"demand_active": False, "demand_queued": True, "workers_dead": True, "tasks_queued": 2},
        heartbeat_s=3600,
        history=kept_history(),
        kills=(
            kill("planner", 61),
            kill("executor", KILLED_PID),
            kill("notifier", 81),
            kill("nats", 91),
        ),
        claim=HeldClaim(
            sequence=10,
            call=str(CALL),
            instance="executor-1",
            incarnation="x",
            effect_key=KEY,
            mesh_pids=(70, KILLED_PID),
            presence_incarnation="x",
            presence_pid=KILLED_PID,
            killed_pid=KILLED_PID,
        ),
        mark=JournalMark(12, "abc", 13, "abc"),
        jobs=primes(),
        results=results(),
        stopped=(),
        first_keys={"first": 3},
        launched={"first": {"w-1": 1, "w-2": 1, "w-3": 1}, KEY: {"w-4": 1, "w-5": 1, "w-6": 1}},
        requests=(
            arrival("4-demo-aaaa", 4),
            arrival("14-demo-bbbb", 14, accepted=False),
            arrival("14-demo-bbbb", 14),
        ),
        anchor={
            "run_count": 2,
            "run_id": 2,
            "last_run_outcome": "success",
            "status": "idle",
            "facts": {"tasks_queued": 0, "workers_dead": False, "jobs_done": 2},
        },
        anchor_key="KV anchors/default.fleet",
    )
