"""A mesh in one process: the services' real code on the simulated bus, as processes that can be killed and restarted.

Run it inside `anchorwatch.testing.bus.loop.run`: time is virtual there, and a seed repeats a run.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import structlog

from anchorwatch import edges
from anchorwatch.bus.port import Stored
from anchorwatch.codec import decode_anchor
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.anchor import Anchor
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.core.session import SessionState
from anchorwatch.core.session.commands import Control, Create, Order
from anchorwatch.core.session.decide import decide
from anchorwatch.journal.commit import Committer
from anchorwatch.journal.history import History, read_history
from anchorwatch.journal.inputs import Receipt, accept
from anchorwatch.journal.mapping import input_body
from anchorwatch.journal.orders import Asked, Done, OrderJournal, canary
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.service.provisioning import ensure_topology
from anchorwatch.service.runner import find
from anchorwatch.settings import Settings
from anchorwatch.testing.bus import Faults, SimServer
from anchorwatch.testing.bus.clock import SimClock
from anchorwatch.testing.process import Process, Run, World
from anchorwatch.testing.watch import EdgeWatch
from anchorwatch.topology.streams import journal_stream
from anchorwatch.topology.subjects import SessionSubjects, parse_register

WORKSPACE = "default"
POLL_S = 0.05


class SimMesh:
    """The server, the processes, and the operations of a test outside of them."""

    def __init__(
        self,
        *,
        seed: int = 0,
        faults: Faults | None = None,
        clock: SimClock | None = None,
        latency_s: tuple[float, float] = (0.0, 0.0),
        log: structlog.stdlib.BoundLogger | None = None,
        **settings: Any,  # noqa: ANN401 - settings
    ) -> None:
        self.server = SimServer(seed=seed, faults=faults, clock=clock, latency_s=latency_s)
        self.settings = Settings(**{"lease_s": 3.0, **settings})
        self.log: structlog.stdlib.BoundLogger = log or structlog.get_logger()
        self.processes: dict[str, Process] = {}
        self.crashes: list[tuple[str, BaseException]] = []
        self.on_crash: Callable[[Process], None] = lambda _: None
        self._scope = contextvars.copy_context()
        self.watch = EdgeWatch()
        self.server.on_write = self.watch.on_write
        self._world = World(self.server, self.settings, self.log, self._crashed)
        self.bus = self.server.connect(name="outside")
        self.committer = Committer(self.bus, journal_stream())
        self.sessions = SessionJournal(self.bus, self.committer, "outside")
        self.orders = OrderJournal(self.bus, self.committer, self.sessions)

    async def open(self, *services: str | tuple[str, Run]) -> None:
        """Make the streams, and start one process of each service (by name, or as name and coroutine function)."""
        edges.install(self.watch.at)
        await ensure_topology(self.bus)
        for service in services:
            await self.add(service)

    async def add(self, service: str | tuple[str, Run]) -> Process:
        """One more process of a service; instances are numbered."""
        name, run = (service, find(service)) if isinstance(service, str) else service
        number = sum(instance.startswith(f"{name}-") for instance in self.processes) + 1
        process = Process(self._world, name, f"{name}-{number}", run)
        self.processes[process.instance] = process
        await process.start()
        return process

    def _crashed(self, process: Process, error: BaseException) -> None:
        self.crashes.append((process.instance, error))
        self.on_crash(process)

    def outside(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run ``work`` in a task outside of all processes."""
        return asyncio.get_running_loop().create_task(work, context=self._scope.copy())

    async def close(self) -> None:
        edges.install(None)
        for process in self.processes.values():
            await process.kill()

    async def session(self, name: str, agent: AgentSpec) -> SessionRef:
        """Apply the agent and create a session, as the gateway does."""
        directory = await AgentDirectory.open(self.bus)
        spec = await directory.apply(WORKSPACE, agent)
        ref = SessionRef(WORKSPACE, name)
        now_ms = self.server.now_ms()
        create = Create(ref, spec.at_version, spec.objectives, spec.constraints, now_ms, "outside")
        await self.sessions.append(ref, SessionState(), decide(SessionState(), create), now_ms)
        await directory.bind(ref, spec.name)
        return ref

    async def say(
        self, ref: SessionRef, id_: str, text: str = "", priority: int = 0, kind: str = "message"
    ) -> Receipt:
        """Accept an input for a session."""
        body = input_body(kind, priority, text=text)
        return await accept(self.committer, ref, id_, body, at_ms=self.server.now_ms(), writer="outside")

    async def order(self, ref: SessionRef, key: str, make: Callable[[SessionState, str], Order]) -> Done:
        """Carry out an order, as the gateway does. ``make`` gets the session's current state and the receipt's id."""
        asked = Asked(f"c-{key}", "outside", key)
        return await self.orders.carry_out(
            ref,
            asked,
            lambda state: make(state, asked.control_id),
            also=lambda change: canary(ref, change, "outside"),
        )

    async def control(self, ref: SessionRef, kind: Kind, key: str, turn_id: str | None = None) -> Done:
        """Pause, resume, cancel or delete."""
        now_ms = self.server.now_ms()
        return await self.order(
            ref, key, lambda _, id_: Control(kind, "outside", now_ms, turn_id=turn_id, control_id=id_)
        )

    async def anchor(self, ref: SessionRef) -> Anchor:
        return (await self.sessions.read_anchor(ref))[0]

    def anchor_now(self, ref: SessionRef) -> Anchor | None:
        """The anchor on the server at this time; None without a session."""
        store = self.server.stream(journal_stream())
        page = store.lasts([SessionSubjects(ref).anchors], store.last_sequence)
        last = max(page.messages, key=lambda each: each.sequence, default=None)
        return decode_anchor(last.payload)[0] if last else None

    async def until(self, condition: Callable[[], Awaitable[bool]], within_s: float = 60.0) -> None:
        """Let time pass until ``condition`` holds.

        Raises:
            AssertionError: it does not hold within ``within_s`` of virtual time.
        """
        for _ in range(round(within_s / POLL_S)):
            if await condition():
                return
            await asyncio.sleep(POLL_S)
        raise AssertionError(f"the condition did not hold within {within_s:g} s of virtual time")

    async def until_rest(self, ref: SessionRef, runs: int, within_s: float = 60.0) -> Anchor:
        """Wait until the session is idle with at least ``runs`` ended turns."""

        async def rested() -> bool:
            anchor = await self.anchor(ref)
            return anchor.status == "idle" and anchor.run_count >= runs

        await self.until(rested, within_s)
        return await self.anchor(ref)

    async def records(self, ref: SessionRef) -> list[tuple[int, str, bytes]]:
        """Every record of a session: (sequence, subject below the session, payload)."""
        prefix = SessionSubjects(ref).everything.removesuffix(">")
        found, start = [], 1
        while True:
            page = await self.bus.range(journal_stream(), f"{prefix}>", start)
            found += [
                (each.sequence, each.subject.removeprefix(prefix), each.payload) for each in page.messages
            ]
            if not page.more:
                return found
            start = page.messages[-1].sequence + 1

    def history(self, ref: SessionRef) -> History:
        """The history in the session's journal at this time."""
        return read_history([each for each in self.journal() if parse_register(each.subject).ref == ref])

    def journal(self) -> list[Stored]:
        """Every message of the journal on the server, in order."""
        return list(self.server.stream(journal_stream()).messages.values())

    async def anchors(self, ref: SessionRef) -> list[dict[str, Any]]:
        """Every anchor record of the session, with its envelope."""
        return [
            json.loads(payload)
            for _, subject, payload in await self.records(ref)
            if subject.startswith("p.anchor.")
        ]
