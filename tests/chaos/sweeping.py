"""The sweep's plays: how each edge is come to, so that a process dies there and another takes its place."""

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
"""Here the conversation outgrows a budget of so few tokens after some turns."""
OVERFLOWS = (Edge.PLANNER_REFUSE_BEFORE, Edge.PLANNER_REFUSE_AFTER)
WAITING_MAX = 2
"""Here so many inputs may wait in a session that is held."""
SNAPSHOT_CALLS = 16
SNAPSHOT_STEPS = SNAPSHOT_AGE // SNAPSHOT_CALLS


async def usual(case: Case) -> None:
    """The process dies while the session is told everything."""
    await case.arm()
    await case.dies_during(case.tell())


async def taken_over(case: Case) -> None:
    """A planner dies in the middle of a turn, and the next one when it takes the turn over."""
    await case.arm(Edge.PLANNER_MODEL_AFTER, 2)
    telling = asyncio.create_task(case.tell())
    await case.death()
    await case.arm()
    await case.dies_during(telling)


async def snapshot(case: Case) -> None:
    """So many calls that the turn ends with a snapshot."""
    await case.arm()
    steps = [[("look", f"{step}-{n}", "ok") for n in range(SNAPSHOT_CALLS)] for step in range(SNAPSHOT_STEPS)]

    async def tell() -> None:
        await case.actor.make()
        await case.actor.say(*steps)

    await case.dies_during(tell())


async def released(case: Case) -> None:
    """A command is claimed although its session was paused meanwhile, and is given back."""
    await case.arm(failing=f"{Edge.EXECUTOR_CLAIM_BEFORE}=stop")
    await case.actor.make()
    await case.actor.say(
        [("set", "a", "ok"), ("build", "b", "ok")] if case.parallel else [("set", "a", "ok")]
    )

    await case.stops()
    await case.actor.control("pause")
    case.scene.mesh.resume(case.instance)
    await case.death()
    await case.back()
    await case.actor.control("resume")


async def too_late(case: Case) -> None:
    """A person settles a call while it is still under way."""
    # The executor has looked at the fence by then, which the turn's end raises.
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
            said = "it is done, says a person"
            settled = Outcome(command.call, "build", "resolved", said, {}, by="ada")
            await effects.append(case.actor.ref, "default", command.call, state, settled, 0)
            break
    case.scene.mesh.resume(case.instance)
    await case.death()
    await case.back()


async def settled(case: Case) -> None:
    """A person settles an effect that is unknown."""
    mesh, actor = case.scene.mesh, case.actor
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


async def compacted(case: Case) -> None:
    """A conversation that no longer fits becomes shorter."""
    await case.actor.make()
    await case.arm()
    armed = case.scene.mesh.children[case.instance]

    async def talk() -> None:
        while case.scene.mesh.children[case.instance] is armed and armed.exit_code is None:
            await case.actor.say(more=TALK)
            await case.actor.rest()

    await case.dies_during(talk())


async def ordered(case: Case) -> None:
    """A person pauses the session, resets it in the middle of a turn, and lets it go on."""
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


async def switched(case: Case) -> None:
    """A person turns the session's kill switch on, and off again."""
    await case.actor.make()
    await case.arm()

    async def turn() -> None:
        await case.actor.kill_switch(on=True)
        await case.actor.say(
            [("set", "a", "ok"), ("build", "b", "ok")] if case.parallel else [("set", "a", "ok")]
        )
        await case.actor.kill_switch(on=False)

    await case.dies_during(turn())


async def overflowed(case: Case) -> None:
    """More events come to a paused session than it keeps."""
    await case.actor.make()
    await case.actor.control("pause")
    await case.arm()

    async def tell() -> None:
        for number in range(WAITING_MAX + 2):
            await case.actor.publish(f"note {number}")

    await case.dies_during(tell())
    await case.actor.control("resume")


async def scheduled(case: Case) -> None:
    """A slot of a schedule has come."""
    daily = Daily(case.actor.bus, case.actor.name)
    await case.actor.make()
    await case.arm()
    await case.dies_during(daily.make(case.actor.name))

    async def made() -> bool:
        return (await daily.now()).counts.made == 1

    await eventually(made, DEATH_S_MAX, "its slot is made")
    await daily.delete()


async def abandoned(case: Case) -> None:
    """A schedule is of a session that there is not."""
    daily = Daily(case.actor.bus, case.actor.name)
    await case.actor.make()
    await case.arm()
    await case.dies_during(daily.make(f"{case.actor.name}-gone"))

    async def ended() -> bool:
        return (await daily.now()).state == "ended"

    await eventually(ended, DEATH_S_MAX, "it ends with its session")


async def kept(case: Case) -> None:
    """A person makes a schedule, and deletes it."""
    await case.actor.make()
    await case.arm()
    name = case.actor.name
    wish = {"name": name, "session": name, "cron": "0 0 1 1 *"}

    def order() -> None:
        with case.scene.mesh.api() as api:
            api.post("/api/schedules", wish, key=f"{name}-made")
            api.delete(f"/api/schedules/{name}", key=f"{name}-deleted")

    await case.dies_during(asyncio.to_thread(order))


HANDLERS = {
    "observer": Edge.OBSERVER_INPUT_BEFORE,
    "planner": Edge.PLANNER_ACQUIRE_BEFORE,
    "executor": Edge.EXECUTOR_CLAIM_BEFORE,
    "notifier": Edge.NOTIFIER_CLAIM_BEFORE,
}
"""Where a service's handler is made to fail, as one that has a defect."""


def fails_twice(edge: Edge) -> str:
    return ";".join(f"{edge}=fail@{reach}" for reach in (1, 2))


async def set_aside(case: Case) -> None:
    """A handler fails, again and again; the process dies where that is written down."""
    await case.arm(failing=fails_twice(HANDLERS[case.edge.service]))
    await case.dies_during(case.tell())


async def given_up(case: Case) -> None:
    """A command is given up, and a person has it tried again."""
    mesh, actor = case.scene.mesh, case.actor
    mesh.start("executor-1", fails_twice(Edge.EXECUTOR_CLAIM_BEFORE))
    await mesh.ready("executor-1")
    await actor.make()
    await actor.say([("set", "a", "ok")])
    letter = await eventually(lambda: _open_letter(case), DEATH_S_MAX, "its command is given up")
    mesh.start("executor-1")
    await mesh.ready("executor-1")

    async def retry() -> None:
        with mesh.api() as api:
            await asyncio.to_thread(api.post, f"/api/dead-letters/{letter}/retry", {}, key=actor.name)

    await case.arm()
    await case.dies_during(retry())


async def _open_letter(case: Case) -> str:
    with case.scene.mesh.api() as api:
        found = await asyncio.to_thread(api.get, "/api/dead-letters", session=case.actor.name, state="open")
    return str(found["data"][0]["id"]) if found["data"] else ""


PLAYS: Mapping[str, Callable[[Case], Awaitable[None]]] = {
    "planner.refuse": overflowed,
    "planner.takeover": taken_over,
    "planner.snapshot": snapshot,
    "executor.release": released,
    "executor.late": too_late,
    "gateway.control": ordered,
    "gateway.switch": switched,
    "gateway.resolve": settled,
    "gateway.letter": given_up,
    "executor.retry": given_up,
    **{f"{service}.letter": set_aside for service in HANDLERS},
    "gateway.schedule": kept,
    "planner.occurrence": scheduled,
    "planner.schedule_end": abandoned,
    "planner.resolution": settled,
    "planner.compaction": compacted,
}
"""By ``<service>.<act>``: how an edge is reached that the usual play does not come to."""


async def play(case: Case) -> None:
    """Have the process die at the edge, and another take its place."""
    await PLAYS.get(case.edge.rpartition(".")[0], usual)(case)


async def _decided(case: Case) -> CallId:
    """The first command of the session, once it is there."""

    async def there() -> CallId | None:
        commands = (await case.actor.journal.history()).commands
        return commands[0].call if commands else None

    call = await eventually(there, DEATH_S_MAX, "a command is decided")
    assert call is not None
    return call
