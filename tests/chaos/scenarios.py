"""The sweep's scenarios: how a process reaches each edge, dies there, and is replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from anchorwatch.core.effect.state import Outcome
from anchorwatch.core.names import CallId
from anchorwatch.edges import Edge
from anchorwatch.journal.commit import Committer
from anchorwatch.journal.effects import EffectJournal
from anchorwatch.topology.streams import journal_stream
from anchorwatch_planner.turn import SNAPSHOT_AGE

from tests.chaos.case import DEATH_S_MAX, Case
from tests.chaos.scheduling import Daily
from tests.support.waiting import eventually

TALK = " please tell me more" * 100
BUDGET = 2_000
OUTGROWS = (Edge.PLANNER_COMPACTION_BEFORE, Edge.PLANNER_COMPACTION_AFTER)
"""At these edges, the conversation exceeds `BUDGET` (tokens) after a few turns."""
REQUESTS = (Edge.PLANNER_REQUEST_BEFORE, Edge.PLANNER_REQUEST_AFTER)
"""At these edges, the session calls a language model, at an address where nothing listens."""
NO_MODEL = {"ANCHORWATCH_MODEL_URL": "http://127.0.0.1:9/v1", "ANCHORWATCH_MODEL_NAME": "absent"}
OVERFLOWS = (Edge.PLANNER_REFUSE_BEFORE, Edge.PLANNER_REFUSE_AFTER)
WAITING_MAX = 2
"""The maximum of inputs that wait in a paused session, at the edges in `OVERFLOWS`."""
SNAPSHOT_CALLS = 16
SNAPSHOT_STEPS = SNAPSHOT_AGE // SNAPSHOT_CALLS


async def usual(case: Case) -> None:
    """The process dies while the session gets each kind of input."""
    await case.arm()
    await case.dies_during(case.send_all())


async def takeover(case: Case) -> None:
    """A planner dies during a turn, and the next planner dies when it takes the turn over."""
    await case.arm(Edge.PLANNER_MODEL_AFTER, 2)
    sending = asyncio.create_task(case.send_all())
    await case.death()
    await case.arm()
    await case.dies_during(sending)


async def snapshot(case: Case) -> None:
    """The turn has enough calls to end with a snapshot."""
    await case.arm()
    steps = [[("look", f"{step}-{n}", "ok") for n in range(SNAPSHOT_CALLS)] for step in range(SNAPSHOT_STEPS)]

    async def send() -> None:
        await case.actor.make()
        await case.actor.say(*steps)

    await case.dies_during(send())


async def release(case: Case) -> None:
    """An executor claims a command of a session that was paused in the meantime, and releases it."""
    await case.arm(failing=f"{Edge.EXECUTOR_CLAIM_BEFORE}=stop")
    await case.actor.make()
    await case.actor.say(
        [("set", "a", "ok"), ("build", "b", "ok")] if case.parallel else [("set", "a", "ok")]
    )

    await case.stops()
    await case.actor.control("pause")
    case.chaos.mesh.resume(case.instance)
    await case.death()
    await case.back()
    await case.actor.control("resume")


async def late_outcome(case: Case) -> None:
    """A person resolves a call while it is in flight."""
    # The executor has already read the fence, which the end of the turn raises.
    await case.arm(failing=f"{Edge.EXECUTOR_EFFECT_BEFORE}=stop")
    await case.actor.make()
    await case.actor.say(
        [("build", "a", "ok"), ("build", "b", "ok")] if case.parallel else [("build", "a", "ok")]
    )
    await case.stops()
    effects = EffectJournal(case.actor.bus, Committer(case.actor.bus, journal_stream()), "tests:chaos")
    for command in (await case.actor.journal.history()).commands:
        state = await effects.load(case.actor.ref, "default", command.call, 0)
        if state.claim is not None:
            text = "a person reports it as done"
            settled = Outcome(command.call, "build", "resolved", text, {}, by="ada")
            await effects.append(case.actor.ref, "default", command.call, state, settled, 0)
            break
    case.chaos.mesh.resume(case.instance)
    await case.death()
    await case.back()


async def resolution(case: Case) -> None:
    """A person resolves an unknown effect."""
    mesh, actor = case.chaos.mesh, case.actor
    await actor.make()
    calls = [("fire", "a", "lost"), ("set", "b", "ok")] if case.parallel else [("fire", "a", "lost")]
    await actor.say(calls)
    call = (await actor.rest()).commands[0].call
    body = {"call": f"{actor.name}/{call}", "verdict": "done", "note": "it was seen"}

    async def resolve() -> None:
        with mesh.api() as api:
            await asyncio.to_thread(api.post, "/api/effects/resolve", body, key=actor.name)

    await case.arm()
    await case.dies_during(resolve())


async def compaction(case: Case) -> None:
    """A conversation that exceeds its budget is compacted."""
    await case.actor.make()
    await case.arm()
    armed = case.chaos.mesh.children[case.instance]

    async def talk() -> None:
        while case.chaos.mesh.children[case.instance] is armed and armed.exit_code is None:
            await case.actor.say(more=TALK)
            await case.actor.rest()

    await case.dies_during(talk())


async def controls(case: Case) -> None:
    """A person pauses the session, resets it during a turn, and resumes it."""
    await case.actor.make()
    await case.actor.say(
        [("set", "a", "ok"), ("build", "b", "ok")] if case.parallel else [("set", "a", "ok")]
    )
    await _decided(case)
    await case.arm(reach=2 if case.parallel else 1)

    async def order() -> None:
        await case.actor.control("pause")
        await case.actor.reset()
        await case.actor.say([("set", "c", "ok")])
        await case.actor.control("resume")

    await case.dies_during(order())


async def kill_switch(case: Case) -> None:
    """A person turns the session's kill switch on and off."""
    await case.actor.make()
    await case.arm()

    async def turn() -> None:
        await case.actor.kill_switch(on=True)
        await case.actor.say(
            [("set", "a", "ok"), ("build", "b", "ok")] if case.parallel else [("set", "a", "ok")]
        )
        await case.actor.kill_switch(on=False)

    await case.dies_during(turn())


async def overflow(case: Case) -> None:
    """A paused session gets more events than it keeps."""
    await case.actor.make()
    await case.actor.control("pause")
    await case.arm()

    async def send() -> None:
        for number in range(WAITING_MAX + 2):
            await case.actor.publish(f"note {number}")

    await case.dies_during(send())
    await case.actor.control("resume")


async def schedule_slot(case: Case) -> None:
    """A slot of a schedule fires."""
    daily = Daily(case.actor.bus, case.actor.name)
    await case.actor.make()
    await case.arm()
    await case.dies_during(daily.make(case.actor.name))

    async def made() -> bool:
        return (await daily.now()).counts.made == 1

    await eventually(made, DEATH_S_MAX, "its slot is made")
    await daily.delete()


async def schedule_without_session(case: Case) -> None:
    """A schedule names an unknown session."""
    daily = Daily(case.actor.bus, case.actor.name)
    await case.actor.make()
    await case.arm()
    await case.dies_during(daily.make(f"{case.actor.name}-gone"))

    async def ended() -> bool:
        return (await daily.now()).state == "ended"

    await eventually(ended, DEATH_S_MAX, "it ends with its session")


async def schedule_changes(case: Case) -> None:
    """A person creates a schedule and deletes it."""
    await case.actor.make()
    await case.arm()
    name = case.actor.name
    wish = {"name": name, "session": name, "cron": "0 0 1 1 *"}

    def order() -> None:
        with case.chaos.mesh.api() as api:
            api.post("/api/schedules", wish, key=f"{name}-made")
            api.delete(f"/api/schedules/{name}", key=f"{name}-deleted")

    await case.dies_during(asyncio.to_thread(order))


HANDLERS = {
    "observer": Edge.OBSERVER_INPUT_BEFORE,
    "planner": Edge.PLANNER_ACQUIRE_BEFORE,
    "executor": Edge.EXECUTOR_CLAIM_BEFORE,
    "notifier": Edge.NOTIFIER_CLAIM_BEFORE,
}
"""The edge at which a failpoint makes each service's handler fail, like a defect."""


def fails_twice(edge: Edge) -> str:
    return ";".join(f"{edge}=fail@{reach}" for reach in (1, 2))


async def dead_letter(case: Case) -> None:
    """A handler fails repeatedly; the process dies where it writes the dead letter."""
    await case.arm(failing=fails_twice(HANDLERS[case.edge.service]))
    await case.dies_during(case.send_all())


async def dead_letter_retry(case: Case) -> None:
    """A command becomes a dead letter, and a person retries it."""
    mesh, actor = case.chaos.mesh, case.actor
    mesh.start("executor-1", fails_twice(Edge.EXECUTOR_CLAIM_BEFORE))
    await mesh.ready("executor-1")
    await actor.make()
    await actor.say([("set", "a", "ok")])
    letter = await eventually(lambda: _open_letter(case), DEATH_S_MAX, "its command has an open dead letter")
    mesh.start("executor-1")
    await mesh.ready("executor-1")

    async def retry() -> None:
        with mesh.api() as api:
            await asyncio.to_thread(api.post, f"/api/dead-letters/{letter}/retry", {}, key=actor.name)

    await case.arm()
    await case.dies_during(retry())


async def _open_letter(case: Case) -> str:
    with case.chaos.mesh.api() as api:
        found = await asyncio.to_thread(api.get, "/api/dead-letters", session=case.actor.name, state="open")
    return str(found["data"][0]["id"]) if found["data"] else ""


SCENARIOS: Mapping[str, Callable[[Case], Awaitable[None]]] = {
    "planner.refuse": overflow,
    "planner.takeover": takeover,
    "planner.snapshot": snapshot,
    "executor.release": release,
    "executor.late": late_outcome,
    "gateway.control": controls,
    "gateway.switch": kill_switch,
    "gateway.resolve": resolution,
    "gateway.letter": dead_letter_retry,
    "executor.retry": dead_letter_retry,
    **{f"{service}.letter": dead_letter for service in HANDLERS},
    "gateway.schedule": schedule_changes,
    "planner.occurrence": schedule_slot,
    "planner.schedule_end": schedule_without_session,
    "planner.resolution": resolution,
    "planner.compaction": compaction,
}
"""By ``<service>.<act>``: the scenarios of the edges that `usual` does not reach."""


async def run_scenario(case: Case) -> None:
    """Run the scenario of the case's edge."""
    await SCENARIOS.get(case.edge.rpartition(".")[0], usual)(case)


async def _decided(case: Case) -> CallId:
    """The first command of the session, once it is recorded."""

    async def there() -> CallId | None:
        commands = (await case.actor.journal.history()).commands
        return commands[0].call if commands else None

    call = await eventually(there, DEATH_S_MAX, "a command is decided")
    assert call is not None
    return call
