"""One case of the sweep: a process dies at one edge, another takes its place, and the session comes to rest."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from anchorwatch.core.effect.state import Outcome
from anchorwatch.core.names import CallId
from anchorwatch.edges import Edge
from anchorwatch.journal.commit import Committer
from anchorwatch.journal.effects import EffectJournal
from anchorwatch.topology.streams import journal_stream

from tests.chaos.scene import KILLED, Scene, Told
from tests.support.waiting import eventually

DEATH_S_MAX = 20.0
LARGE = " " * 40_000
TALK = " please tell me more" * 100
BUDGET = 2_000
OUTGROWS = (Edge.PLANNER_COMPACTION_BEFORE, Edge.PLANNER_COMPACTION_AFTER)
"""Here the conversation outgrows a budget of so few tokens after some turns."""
OVERFLOWS = (Edge.PLANNER_REFUSE_BEFORE, Edge.PLANNER_REFUSE_AFTER)
WAITING_MAX = 2
"""Here so many inputs may wait in a session that is held."""
SNAPSHOT_CALLS = 16
SNAPSHOT_STEPS = 6


@dataclass
class Case:
    """``reach``: at which reach of the edge its process dies."""

    scene: Scene
    actor: Told
    edge: Edge
    reach: int
    parallel: bool

    @property
    def instance(self) -> str:
        return f"{self.edge.service}-1"

    async def arm(self, edge: Edge | None = None, reach: int | None = None) -> None:
        """Have the service's next process die at the edge (this case's, unless another is named)."""
        self.scene.mesh.start(self.instance, f"{edge or self.edge}=kill@{reach or self.reach}")
        # It may come to its edge by what its former self left to do, before it says that it works.
        await self.scene.mesh.came(self.instance)

    async def death(self) -> None:
        """Wait until the process has died, and see that it died at its edge."""
        child = self.scene.mesh.children[self.instance]

        async def dead() -> bool:
            return child.exit_code is not None

        await eventually(dead, DEATH_S_MAX, f"{self.instance} reaches {self.edge}")
        assert child.exit_code == KILLED

    async def back(self) -> None:
        """Start it again, without any failpoint."""
        self.scene.mesh.start(self.instance)
        await self.scene.mesh.ready(self.instance)

    async def tell(self) -> None:
        """Everything that a session may be told: calls of every class, events, things too large for a record."""
        await self.actor.make()
        if self.parallel:
            await self.actor.say(
                [
                    ("set", "a", "artifact"),
                    ("build", "b", "lost_once"),
                    ("fire", "c", "ok"),
                    ("look", "d", "ok"),
                ],
                [("build", "e", "ok"), ("fire", "f", "lost")],
            )
        else:
            await self.actor.say(
                [("set", "a", "artifact")],
                [("build", "b", "lost_once")],
                [("fire", "c", "lost")],
                [("look", "d", "ok")],
            )
        await self.actor.publish("a note")
        await self.actor.publish(LARGE)
        await self.actor.say(more=LARGE)
        self.actor.world.set_world(dead="w-1")


async def usual(case: Case) -> None:
    """The process dies while the session is told everything."""
    await case.arm()
    await _dies_during(case, case.tell())


async def taken_over(case: Case) -> None:
    """A planner dies in the middle of a turn, and the next one when it takes the turn over."""
    await case.arm(Edge.PLANNER_MODEL_AFTER, 2)
    telling = asyncio.create_task(case.tell())
    await case.death()
    await case.arm()
    await _dies_during(case, telling)


async def snapshot(case: Case) -> None:
    """So many calls that the turn ends with a snapshot."""
    await case.arm()
    steps = [[("look", f"{step}-{n}", "ok") for n in range(SNAPSHOT_CALLS)] for step in range(SNAPSHOT_STEPS)]

    async def tell() -> None:
        await case.actor.make()
        await case.actor.say(*steps)

    await _dies_during(case, tell())


async def released(case: Case) -> None:
    """A command is claimed although its session was paused meanwhile, and is given back."""
    case.scene.mesh.kill(case.instance)
    await case.actor.make()
    await case.actor.say(
        [("set", "a", "ok"), ("build", "b", "ok")] if case.parallel else [("set", "a", "ok")]
    )
    await _decided(case)
    await case.actor.control("pause")
    await case.arm()
    await case.death()
    await case.back()
    await case.actor.control("resume")


async def too_late(case: Case) -> None:
    """A person settles a call while it is still under way."""
    await case.arm()
    await case.actor.make()
    await case.actor.say(
        [("build", "a", "hang"), ("look", "b", "ok")] if case.parallel else [("build", "a", "hang")]
    )
    call = await _decided(case)
    effects = EffectJournal(case.actor.bus, Committer(case.actor.bus, journal_stream()), "tests:chaos")

    async def claimed() -> bool:
        return (await effects.load(case.actor.ref, "default", call, 0)).claim is not None

    await eventually(claimed)
    state = await effects.load(case.actor.ref, "default", call, 0)
    settled = Outcome(call, "build", "resolved", "it is done, says a person", {}, by="ada")
    await effects.append(case.actor.ref, "default", call, state, settled, 0)
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
    await _dies_during(case, resolve())


async def compacted(case: Case) -> None:
    """A conversation that no longer fits becomes shorter."""
    await case.actor.make()
    await case.arm()
    armed = case.scene.mesh.children[case.instance]

    async def talk() -> None:
        while case.scene.mesh.children[case.instance] is armed and armed.exit_code is None:
            await case.actor.say(more=TALK)
            await case.actor.rest()

    await _dies_during(case, talk())


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

    await _dies_during(case, order())


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

    await _dies_during(case, turn())


async def overflowed(case: Case) -> None:
    """More events come to a paused session than it keeps."""
    await case.actor.make()
    await case.actor.control("pause")
    await case.arm()

    async def tell() -> None:
        for number in range(WAITING_MAX + 2):
            await case.actor.publish(f"note {number}")

    await _dies_during(case, tell())
    await case.actor.control("resume")


PLAYS: Mapping[str, Callable[[Case], Awaitable[None]]] = {
    "planner.refuse": overflowed,
    "planner.takeover": taken_over,
    "planner.snapshot": snapshot,
    "executor.release": released,
    "executor.late": too_late,
    "gateway.control": ordered,
    "gateway.switch": switched,
    "gateway.resolve": settled,
    "planner.resolution": settled,
    "planner.compaction": compacted,
}
"""By ``<service>.<act>``: how an edge is reached that the usual play does not come to."""


async def play(case: Case) -> None:
    """Have the process die at the edge, and another take its place."""
    await PLAYS.get(case.edge.rpartition(".")[0], usual)(case)


async def _dies_during(case: Case, telling: Awaitable[None]) -> None:
    task = asyncio.ensure_future(telling)
    try:
        await case.death()
        await case.back()
        await task
    finally:
        task.cancel()


async def _decided(case: Case) -> CallId:
    """The first command of the session, once it is there."""

    async def there() -> CallId | None:
        commands = (await case.actor.journal.history()).commands
        return commands[0].call if commands else None

    call = await eventually(there)
    assert call is not None
    return call
