"""Items that a service cannot handle, and items that end its process: one class for each service.

Each knows how to send its item, how to repair what is wrong with it, and when later items have passed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from anchorwatch.bus.port import Message
from anchorwatch.codec import decode
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.effect.state import Outcome
from anchorwatch.core.errors import NotFound
from anchorwatch.core.names import SessionRef
from anchorwatch.core.tools import ToolSpec
from anchorwatch.journal.effect_mapping import read_outcome
from anchorwatch.journal.inputs import accept, accept_together, input_id
from anchorwatch.journal.reading import Opened
from anchorwatch.models.port import Situation, StepDecision
from anchorwatch.packs import registry
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.service.context import ServiceContext
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.topology.streams import EVENTS, journal_stream
from anchorwatch.topology.subjects import OUTCOMES, RPC_MEMORY, SessionSubjects
from anchorwatch_memory.fold import wakes
from anchorwatch_memory.main import run_on
from anchorwatch_memory.projections import InlineProjections

from tests.support.letters import PoisonPack, letters
from tests.support.packs import bench_agent
from tests.support.sessions import ScriptedSession

EVENT = "aw.event.default.fleet.instance.dead"
QUIET_S = 3600
"""A heartbeat that wakes no session within a test."""
Passed = Callable[[], Awaitable[bool]]


class Case(ABC):
    """What a test does with one service."""

    service: ClassVar[str]

    def __init__(self, mesh: SimMesh, directory: Path, patches: pytest.MonkeyPatch) -> None:
        self.mesh, self.directory, self.patches = mesh, directory, patches

    @abstractmethod
    async def open(self) -> None:
        """Start the processes that the case needs, and make its sessions."""


class Poison(Case):
    """One item that the service cannot handle. ``letter_id``: of its letter, once it is sent."""

    code: ClassVar[str]
    """Of its fault."""
    tries: ClassVar[int] = 8
    """Before the letter is shown to people."""
    consumer: ClassVar[tuple[str, str] | None]
    """The stream and durable consumer that deliver it."""
    letter_id: str

    @abstractmethod
    async def send(self) -> None: ...

    @abstractmethod
    async def flood(self, count: int) -> Passed:
        """Send ``count`` later items that the service can handle; the result says whether they are handled."""

    @abstractmethod
    async def repair(self) -> None:
        """Remove the cause."""

    @abstractmethod
    async def handled(self) -> bool:
        """Whether the service has handled the item after all."""

    async def is_acked(self) -> bool:
        """Whether the service's consumer holds no message."""
        if self.consumer is None:
            return True
        stream, durable = self.consumer
        return (await self.mesh.bus.consumer_states(stream))[durable].ack_pending == 0


# ------------------------------------------------------------ observer


def register_of(ref: SessionRef, id_: str) -> str:
    return SessionSubjects(ref).input(input_of(id_))


def input_of(id_: str) -> str:
    return input_id("ev", "message", EVENT, id_)


async def publish_event(mesh: SimMesh, id_: str) -> int:
    return (await mesh.bus.publish(Message(EVENT, b"{}", message_id=id_))).sequence


async def inputs_of(mesh: SimMesh, ref: SessionRef) -> int:
    return sum(subject.startswith("in.") for _, subject, _ in await mesh.records(ref))


async def subscribed_session(mesh: SimMesh, directory: Path) -> SessionRef:
    """A session that the events reach."""
    agents = await AgentDirectory.open(mesh.bus)
    await agents.apply("default", bench_agent(directory, subscriptions=("fleet.>",)))
    ref = SessionRef("default", "fleet")
    await agents.bind(ref, "keeper")
    return ref


class PoisonEvent(Poison):
    """An event whose input's register holds no valid record: it can be neither accepted nor found."""

    service = "observer"
    code = "damaged"
    consumer = (EVENTS, "observer")

    async def open(self) -> None:
        await self.mesh.open("observer")
        self.ref = await subscribed_session(self.mesh, self.directory)

    async def send(self) -> None:
        await self.mesh.bus.publish(Message(register_of(self.ref, "bad"), b"noise"))
        self.letter_id = f"observer-events-{await publish_event(self.mesh, 'bad')}"

    async def flood(self, count: int) -> Passed:
        before = await inputs_of(self.mesh, self.ref)
        for n in range(count):
            await publish_event(self.mesh, f"good-{n}")

        async def passed() -> bool:
            return await inputs_of(self.mesh, self.ref) == before + count

        return passed

    async def repair(self) -> None:
        await self.mesh.bus.purge(journal_stream(), register_of(self.ref, "bad"))

    async def handled(self) -> bool:
        return await inputs_of(self.mesh, self.ref) == 1


# ------------------------------------------------------------ executor


async def outcomes(mesh: SimMesh, ref: SessionRef) -> list[Outcome]:
    return [
        read_outcome(decode(payload).body)
        for _, subject, payload in await mesh.records(ref)
        if subject.split(".")[-1] in OUTCOMES
    ]


def agent_of(directory: Path, pack: PoisonPack, **changes: Any) -> AgentSpec:
    """An agent of the pack, which the registry then holds."""
    registry.register(pack)
    return bench_agent(directory, pack=pack.name, heartbeat_s=QUIET_S, **changes)


class PoisonCommand(Poison):
    """A command whose pack cannot connect."""

    service = "executor"
    code = "internal"
    consumer = (journal_stream(), "executor-default")

    async def open(self) -> None:
        self.pack = PoisonPack()
        self.pack.broken = True
        await self.mesh.open("executor")
        self.ref = await self.mesh.session("bad", agent_of(self.directory / "bad", self.pack, name="bad"))
        await self.mesh.session("good", bench_agent(self.directory, heartbeat_s=QUIET_S))

    async def send(self) -> None:
        bad = ScriptedSession(self.mesh.bus, "bad")
        await bad.acquire(agent="bad@1")
        await bad.command("look")
        self.letter_id = "executor-bad-1-1-1"

    async def flood(self, count: int) -> Passed:
        sessions = [ScriptedSession(self.mesh.bus, f"good-{n}") for n in range(10)]
        share = count // len(sessions)
        for session in sessions:
            await session.create()
            await session.acquire()
            await session.commands(*(("look", {"item": f"i{n}"}) for n in range(share)))

        async def passed() -> bool:
            done = [each.state for session in sessions for each in await outcomes(self.mesh, session.ref)]
            return done == ["succeeded"] * count

        return passed

    async def repair(self) -> None:
        self.pack.broken = False

    async def handled(self) -> bool:
        return [each.state for each in await outcomes(self.mesh, self.ref)] == ["succeeded"]

    async def is_refused(self) -> bool:
        """Whether the command has its one outcome."""
        done = await outcomes(self.mesh, self.ref)
        return [(each.state, each.rule) for each in done] == [("refused", "dead_letter")]


# ------------------------------------------------------------ memory


async def memory(context: ServiceContext) -> None:
    """Memory with its projections in place, since virtual time has no threads."""
    await run_on(context, InlineProjections())


async def ask_memory(mesh: SimMesh, verb: str, **params: Any) -> Any:
    payload = json.dumps({"workspace": "default", **params}).encode()
    return json.loads(await mesh.bus.request(RPC_MEMORY.at(verb=verb), payload, 5.0))["result"]


class PoisonRecord(Poison):
    """An input that a defect keeps out of memory's projection. Its position depends on nothing, so it is shown at once."""

    service = "memory"
    code = "internal"
    tries = 1
    consumer = None

    async def open(self) -> None:
        self.defective = True
        enter = wakes.accept

        def accept_record(db: sqlite3.Connection, opened: Opened) -> None:
            if opened.register.path[1] == "bad" and self.defective:
                raise AssertionError("a fault of the fold")
            enter(db, opened)

        self.patches.setattr("anchorwatch_memory.fold.wakes.accept", accept_record)
        await self.mesh.open(("memory", memory))
        self.bad = await self.mesh.session("bad", bench_agent(self.directory))
        self.good = await self.mesh.session("good", bench_agent(self.directory))

    async def send(self) -> None:
        self.sequence = (await self.mesh.say(self.bad, "bad")).sequence
        self.letter_id = f"memory-journal0-{self.sequence}"

    async def flood(self, count: int) -> Passed:
        for n in range(count):
            last = (await self.mesh.say(self.good, f"m{n}")).sequence

        async def passed() -> bool:
            found = await ask_memory(self.mesh, "session", session="good", at_least=last)
            return bool(found["pending_inputs"] == count)

        return passed

    async def repair(self) -> None:
        self.defective = False

    async def handled(self) -> bool:
        found = await ask_memory(self.mesh, "session", session="bad")
        return bool(found["pending_inputs"] == 1)


# ------------------------------------------------------------ planner


class MissingPack(PoisonPack):
    """A pack that no process can load while ``missing``."""

    name = "missing"
    missing = False

    def tools(self, agent: AgentSpec) -> Sequence[ToolSpec]:
        if self.missing:
            raise NotFound("unknown pack 'missing'")
        return super().tools(agent)


async def session_without_pack(mesh: SimMesh, directory: Path) -> tuple[SessionRef, MissingPack]:
    """Session ``s``, whose pack is missing when its planner starts."""
    pack = MissingPack()
    await mesh.open("executor")
    ref = await mesh.session("s", agent_of(directory, pack))
    pack.missing = True
    await mesh.add("planner")
    return ref, pack


class PoisonSession(Poison):
    """A session whose pack is missing."""

    service = "planner"
    code = "not_found"
    consumer = (journal_stream(), "planner")

    async def open(self) -> None:
        self.ref, self.pack = await session_without_pack(self.mesh, self.directory)

    async def send(self) -> None:
        self.letter_id = "planner-s"

    async def flood(self, count: int) -> Passed:
        spec = agent_of(self.directory / "good", PoisonPack(), name="good")
        good = await self.mesh.session("good", spec)
        for n in range(count):
            last = (await self.mesh.say(good, f"m{n}", kind="trigger")).sequence

        async def passed() -> bool:
            return (await self.mesh.anchor(good)).inputs_through >= last

        return passed

    async def repair(self) -> None:
        self.pack.missing = False

    async def handled(self) -> bool:
        return (await self.mesh.anchor(self.ref)).run_count >= 1


POISONS: Sequence[type[Poison]] = (PoisonEvent, PoisonCommand, PoisonRecord, PoisonSession)


# ------------------------------------------------------------ items that end their process


class Killer(Case):
    """An item whose handler ends the process, each time. ``deaths``: those so far."""

    letter_id: str

    def __init__(self, mesh: SimMesh, directory: Path, patches: pytest.MonkeyPatch) -> None:
        super().__init__(mesh, directory, patches)
        self.deaths: list[asyncio.Task[None]] = []

    @abstractmethod
    async def passed(self) -> bool:
        """Whether the other items are handled."""

    async def after(self) -> None:
        """What must hold once the letter is open."""

    def die(self) -> None:
        """Kill the process from outside; the caller must not return."""
        self.deaths.append(asyncio.create_task(self.mesh.processes[f"{self.service}-1"].kill()))

    async def revive(self) -> None:
        """Start the process if it does not run; it may die before it is ready."""
        process = self.mesh.processes[f"{self.service}-1"]
        if not process.running:
            with contextlib.suppress(asyncio.CancelledError):
                await process.start()


class KillerEvent(Killer):
    """An event among 40 others: accepting it writes nothing and never returns."""

    service = "observer"

    async def open(self) -> None:
        await self.mesh.open("observer")
        self.ref = await subscribed_session(self.mesh, self.directory)
        await self.mesh.processes["observer-1"].kill()
        self.patches.setattr("anchorwatch_observer.routing.accept", self._accept)
        self.patches.setattr("anchorwatch_observer.routing.accept_together", self._accept_together)
        for id_ in (*(f"a-{n}" for n in range(20)), "killer", *(f"b-{n}" for n in range(20))):
            sequence = await publish_event(self.mesh, id_)
            if id_ == "killer":
                self.letter_id = f"observer-events-{sequence}"

    async def _accept_together(self, committer: Any, ref: Any, given: Any, **named: Any) -> None:
        for id_, _ in given:
            await self._check(id_)
        await accept_together(committer, ref, given, **named)

    async def _accept(self, committer: Any, ref: Any, id_: str, *arguments: Any, **named: Any) -> Any:
        await self._check(id_)
        return await accept(committer, ref, id_, *arguments, **named)

    async def _check(self, id_: str) -> None:
        if id_ == input_of("killer"):
            self.die()
            await asyncio.sleep(3600)

    async def passed(self) -> bool:
        return await inputs_of(self.mesh, self.ref) == 40


class KillerCommand(Killer):
    """A read: it is run again after each death, since that does no harm outside."""

    service = "executor"
    letter_id = "executor-s-1-1-1"

    async def open(self) -> None:
        pack = PoisonPack("look")
        pack.deadly = self._run
        await self.mesh.open("planner", "executor")
        self.ref = await self.mesh.session("s", agent_of(self.directory, pack))

    async def _run(self) -> None:
        self.die()
        await asyncio.sleep(3600)

    async def passed(self) -> bool:
        return (await self.mesh.anchor(self.ref)).run_count == 1

    async def after(self) -> None:
        (done,) = await outcomes(self.mesh, self.ref)
        assert (done.state, done.rule) == ("refused", "dead_letter")


class KillerSession(Killer):
    """A session whose rules end the planner, beside one that works."""

    service = "planner"
    letter_id = "planner-bad"

    async def open(self) -> None:
        deadly = PoisonPack()
        deadly.name = "deadly"
        deadly.rules = self._decide  # type: ignore[method-assign]
        await self.mesh.open("planner", "executor")
        self.bad = await self.mesh.session("bad", agent_of(self.directory, deadly, name="bad"))
        self.well = await self.mesh.session("well", agent_of(self.directory, PoisonPack()))

    def _decide(self, situation: Situation) -> StepDecision:
        self.die()
        raise asyncio.CancelledError(str(situation.run_id))

    async def passed(self) -> bool:
        return True

    async def after(self) -> None:
        deaths = len(self.deaths)
        await self.revive()
        runs = (await self.mesh.anchor(self.well)).run_count
        for n in range(3):
            await self.mesh.say(self.well, f"m{n}", kind="trigger")
            await self.mesh.until_rest(self.well, runs + n + 1, within_s=30)
        await self.mesh.say(self.bad, "m", kind="trigger")
        await asyncio.sleep(120)
        assert len(self.deaths) == deaths, "its session is not started again"
        states = await self.mesh.bus.consumer_states(journal_stream())
        assert states["planner"].ack_pending == 0


KILLERS: Sequence[type[Killer]] = (KillerEvent, KillerCommand, KillerSession)


async def blamed(mesh: SimMesh) -> list[str]:
    """The letters of items that are held responsible, by state and id."""
    return [
        f"{each.state} {each.address.letter_id}"
        for each in await letters(mesh.bus)
        if each.state != "suspected"
    ]
