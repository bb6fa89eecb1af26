"""Gives each event to the sessions whose agents want it: one input for each, and an ack when all of them stand."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anchorwatch.bus.port import ConsumerSpec, Delivery, Stored
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.errors import AnchorWatchError, IdempotencyConflict, Unavailable
from anchorwatch.core.letters import Address, DeadLetter
from anchorwatch.core.names import SessionRef
from anchorwatch.edges import Edge, reached
from anchorwatch.journal.artifacts import ArtifactJournal, Provenance
from anchorwatch.journal.inputs import accept, accept_together
from anchorwatch.journal.mapping import input_body
from anchorwatch.service.agents import AgentDirectory, subscribed
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.intake import Intake
from anchorwatch.service.keepalive import ACK_WAIT_S, KeepAlive
from anchorwatch.service.letters import DeadLetters, address_of
from anchorwatch.service.worker import Done, Result
from anchorwatch.topology.streams import EVENTS
from anchorwatch.topology.subjects import EVENT_ALL

from anchorwatch_observer.events import Event, read_event

BATCH = 64
DATA_BYTES_MAX = 16 * 1024
"""An event's data up to this size stands in its input; larger data is an artifact."""
AGAIN_S = 1.0
TELL_S = 60.0
WANTED_KEPT_MAX = 4_096
"""Names of events of which it is remembered who wants them; the world can make up as many as it likes."""
SERVICE = "observer"
CONSUMER = ConsumerSpec(stream=EVENTS, filters=(EVENT_ALL,), durable="observer", ack_wait_s=ACK_WAIT_S)

Body = Mapping[str, Any]
Subscribers = Sequence[tuple[AgentSpec, list[str]]]


@dataclass(slots=True)
class _Item:
    """An event in hand. ``error``: why some session could not take it."""

    stored: Stored
    delivery: Delivery | None
    error: Exception | None = None

    @property
    def address(self) -> Address:
        """Of its dead letter, for an event that names a workspace; none is written for any other."""
        workspace = [*self.stored.subject.split("."), ""][2]
        return address_of(SERVICE, "event", workspace, EVENTS, self.stored)


class Router:
    """Routes until ``context.stopping``. ``counts`` says what became of events since it began."""

    def __init__(self, context: ServiceContext, agents: AgentDirectory, letters: DeadLetters) -> None:
        self._context = context
        self._agents = agents
        self._letters = letters
        self._writer = context.identity.execution_id
        self._committer = context.committer
        self._artifacts = ArtifactJournal(context.bus, self._committer, self._writer)
        self._intake = Intake(context.bus, CONSUMER, context.stopping, context.crashes)
        self._alive = KeepAlive()
        self.counts: Counter[str] = Counter()
        self._told: Counter[str] = Counter()
        self._told_at_ms = 0
        self._wanted: dict[tuple[str, str], tuple[Subscribers, list[SessionRef]]] = {}

    async def run(self) -> None:
        """Route what comes, in batches; the events of one session stay in order."""
        alive = asyncio.create_task(self._alive.run(), name="in-progress")
        try:
            await self._intake.open()
            await self._route([_Item(stored, None) for stored in await self._intake.unfinished()])
            self._context.ready.set()
            while not self._context.stopping.is_set():
                deliveries = await self._intake.next(BATCH)
                await self._route([_Item(delivery.stored, delivery) for delivery in deliveries])
                self._tell()
        finally:
            alive.cancel()
            await asyncio.gather(alive, return_exceptions=True)
            await self._intake.close()

    def _tell(self) -> None:
        """Say now and then what became of events; those that nobody wants are seen nowhere else."""
        now_ms = self._context.clock.now_ms()
        if now_ms - self._told_at_ms >= TELL_S * 1000 and self.counts != self._told:
            self._told_at_ms, self._told = now_ms, self.counts.copy()
            self._context.log.info("events so far", **self.counts)

    async def take_up(self, letter: DeadLetter) -> Result:
        """Route an event that could not be routed, once more."""
        item = _Item(await self._letters.message(letter.address), None)
        await self._spread([item])
        if item.error is not None:
            raise item.error
        return Done()

    async def settle(self, letter: DeadLetter) -> None:
        """Nothing depends on an event that became no input."""

    async def _route(self, items: Sequence[_Item]) -> None:
        for item in items:
            if item.delivery is not None:
                self._alive.hold(item.delivery)
        suspects = [
            item for item in items if item.delivery is not None and self._is_suspect(item, item.delivery)
        ]
        plain = [item for item in items if item not in suspects]
        await self._spread(plain)
        await asyncio.gather(*(self._answer(item) for item in plain))
        for item in suspects:
            await self._route_alone(item)

    def _is_suspect(self, item: _Item, delivery: Delivery) -> bool:
        return (
            self._letters.suspicious(item.address, delivery.attempt) and read_event(item.stored) is not None
        )

    async def _route_alone(self, item: _Item) -> None:
        """Route an event that came more often than it may, and may have ended the process each time."""
        try:
            async with self._letters.guard(
                item.address, item.delivery.attempt if item.delivery else 1
            ) as admitted:
                if admitted:
                    await self._spread([item])
        except AnchorWatchError as error:
            item.error = error
        await self._answer(item)

    async def _spread(self, items: Sequence[_Item]) -> None:
        """Give each event to all sessions that want it; what fails is said in the item."""
        queues: dict[SessionRef, list[tuple[_Item, Event]]] = {}
        # Looked up after the events came: a session that was made before an event was published is known here.
        known: dict[str, Subscribers] = {}
        for item in items:
            event = read_event(item.stored)
            if event is None:
                # Nobody's: there is no workspace whose people could be shown it.
                self.counts["malformed"] += 1
                self._context.log.warning("an event names no workspace", subject=item.stored.subject[:200])
                continue
            try:
                targets = await self._targets(event, known)
            except Exception as error:  # noqa: BLE001 - one event must not hold up the others
                item.error = error
                continue
            self.counts["routed" if targets else "unwanted"] += 1
            for ref in targets:
                queues.setdefault(ref, []).append((item, event))
        await asyncio.gather(*(self._give(ref, queue) for ref, queue in queues.items()))

    async def _targets(self, event: Event, known: dict[str, Subscribers]) -> list[SessionRef]:
        if event.workspace not in known:
            known[event.workspace] = await self._agents.subscribers(event.workspace)
        subscribers, key = known[event.workspace], (event.workspace, event.name)
        kept = self._wanted.get(key)
        if kept is None or kept[0] is not subscribers:
            targets = [
                SessionRef(event.workspace, session)
                for agent, sessions in subscribers
                if subscribed(agent, event.name)
                for session in sessions
            ]
            if len(self._wanted) >= WANTED_KEPT_MAX:
                self._wanted.clear()
            self._wanted[key] = kept = (subscribers, targets)
        return kept[1]

    async def _give(self, ref: SessionRef, queue: Sequence[tuple[_Item, Event]]) -> None:
        """Give a session these events, in their order: together where all of them are new."""
        now_ms = self._context.clock.now_ms()
        # What is kept apart of large events is kept side by side: others wait for the slowest of them, and not for all.
        bodies = await asyncio.gather(*(self._try_body(ref, item, event, now_ms) for item, event in queue))
        ready = [
            (item, event, body) for (item, event), body in zip(queue, bodies, strict=True) if body is not None
        ]
        if len(ready) > 1 and await self._accept_together(ref, ready, now_ms):
            return
        for item, event, body in ready:
            with self._noting(ref, item):
                reached(Edge.OBSERVER_INPUT_BEFORE)
                await accept(self._committer, ref, event.input_id, body, at_ms=now_ms, writer=self._writer)
                reached(Edge.OBSERVER_INPUT_AFTER)

    async def _accept_together(
        self, ref: SessionRef, ready: Sequence[tuple[_Item, Event, Body]], now_ms: int
    ) -> bool:
        """Whether all have become inputs; else each must be tried by itself, which also tells what is wrong with which."""
        given = [(event.input_id, body) for _, event, body in ready]
        try:
            reached(Edge.OBSERVER_INPUT_BEFORE)
            await accept_together(self._committer, ref, given, at_ms=now_ms, writer=self._writer)
            reached(Edge.OBSERVER_INPUT_AFTER)
        except Unavailable:
            for item, _, _ in ready:
                with self._noting(ref, item):
                    raise
        except Exception:  # noqa: BLE001 - by itself each fails, or does not, and is told so
            return False
        return True

    @contextlib.contextmanager
    def _noting(self, ref: SessionRef, item: _Item) -> Iterator[None]:
        """What goes wrong with an event in a session is said in the item: one must not hold up the others."""
        try:
            yield
        except IdempotencyConflict:
            self._context.log.warning(
                "an event's id was used before for another; the first stands",
                session=str(ref),
                subject=item.stored.subject[:200],
            )
        except Exception as error:  # noqa: BLE001 - as above
            reason = error.message if isinstance(error, AnchorWatchError) else repr(error)[:200]
            self._context.log.warning("an event waits", session=str(ref), reason=reason)
            item.error = error

    async def _try_body(self, ref: SessionRef, item: _Item, event: Event, now_ms: int) -> Body | None:
        made: list[Body] = []
        with self._noting(ref, item):
            made.append(await self._body(ref, event, now_ms))
        return made[0] if made else None

    async def _body(self, ref: SessionRef, event: Event, now_ms: int) -> Body:
        return input_body(
            "event",
            event.priority,
            text=event.text,
            source=event.source,
            type_=event.type,
            data=await self._data(ref, event, now_ms),
            body_sha256=event.body_sha256,
        )

    async def _data(self, ref: SessionRef, event: Event, now_ms: int) -> Any:  # noqa: ANN401 - JSON is of any type
        encoded = json.dumps(event.data, ensure_ascii=False).encode()
        if len(encoded) <= DATA_BYTES_MAX:
            return event.data
        origin = Provenance(maker=event.input_id, acting_as=self._writer)
        reached(Edge.OBSERVER_ARTIFACT_BEFORE)
        kept = await self._artifacts.keep(
            ref, "event.json", "application/json", encoded, origin, at_ms=now_ms
        )
        reached(Edge.OBSERVER_ARTIFACT_AFTER)
        reference: Mapping[str, Any] = {"id": kept.artifact_id, "size_bytes": kept.size_bytes}
        return {"artifact": reference}

    async def _answer(self, item: _Item) -> None:
        if item.delivery is None:
            return
        done = item.error is None or await self._letters.failed(item.address, item.error)
        self._alive.drop(item.delivery)
        if done:
            reached(Edge.OBSERVER_ACK_BEFORE)
            await item.delivery.ack()
        else:
            await item.delivery.nak(AGAIN_S)
