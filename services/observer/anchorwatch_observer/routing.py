"""Gives each event to the sessions whose agents want it: one input for each, and an ack when all of them are written."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anchorwatch.bus.port import ConsumerSpec, Stored
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.errors import AnchorWatchError, IdempotencyConflict, Unavailable
from anchorwatch.core.letters import Address
from anchorwatch.core.names import SessionRef
from anchorwatch.edges import Edge, reached
from anchorwatch.journal.artifacts import ArtifactJournal, Provenance
from anchorwatch.journal.inputs import accept, accept_together
from anchorwatch.journal.mapping import input_body
from anchorwatch.service.agents import AgentDirectory, is_subscribed
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.keepalive import ACK_WAIT_S
from anchorwatch.service.letters import DeadLetters, address_of
from anchorwatch.service.worker import BatchWorker, Malformed, Skip
from anchorwatch.topology.streams import EVENTS
from anchorwatch.topology.subjects import EVENT_ALL

from anchorwatch_observer.events import Event, read_event

BATCH = 64
DATA_BYTES_MAX = 16 * 1024
"""Event data up to this size is part of the input; larger data becomes an artifact."""
TELL_S = 60.0
WANTED_KEPT_MAX = 4_096
"""The event names whose subscribers are cached; publishers can use any number of names."""
SERVICE = "observer"
CONSUMER = ConsumerSpec(stream=EVENTS, filters=(EVENT_ALL,), durable="observer", ack_wait_s=ACK_WAIT_S)

Body = Mapping[str, Any]
Subscribers = Sequence[tuple[AgentSpec, list[str]]]


@dataclass(slots=True)
class _Item:
    """An event in hand. ``error``: why a session could not take it."""

    event: Event
    error: Exception | None = None


class Router(BatchWorker[Event]):
    """Routes until ``context.stopping``. ``counts`` has the number of events by what became of them, since it began."""

    ack_edge = Edge.OBSERVER_ACK_BEFORE
    retry_s_max = 1.0

    def __init__(self, context: ServiceContext, agents: AgentDirectory, letters: DeadLetters) -> None:
        super().__init__(context, CONSUMER, concurrency=BATCH, letters=letters)
        self._agents = agents
        self._writer = context.identity.execution_id
        self._committer = context.committer
        self._artifacts = ArtifactJournal(context.bus, self._committer, self._writer)
        self.counts: Counter[str] = Counter()
        self._told: Counter[str] = Counter()
        self._told_at_ms = 0
        self._wanted: dict[tuple[str, str], tuple[Subscribers, list[SessionRef]]] = {}

    async def resumed(self) -> None:
        self.context.ready.set()

    def parse(self, stored: Stored) -> Event | Skip | Malformed:
        event = read_event(stored)
        if event is None:
            # No dead letter: there is no workspace whose people could see it.
            self.counts["malformed"] += 1
            return Malformed(f"no workspace in {stored.subject[:200]}")
        return event

    def key(self, item: Event) -> str:
        return item.input_id

    def address(self, stored: Stored, item: Event | None) -> Address:
        workspace = item.workspace if item is not None else [*stored.subject.split("."), ""][2]
        return address_of(SERVICE, "event", workspace, EVENTS, stored)

    async def handle_together(self, items: Sequence[Event]) -> Sequence[Exception | None]:
        """Give each event to all sessions that want it. The events of one session stay in order."""
        batch = [_Item(event) for event in items]
        await self._spread(batch)
        self._tell()
        return [item.error for item in batch]

    def _tell(self) -> None:
        """Log the counts now and then: unwanted events appear nowhere else."""
        now_ms = self.context.clock.now_ms()
        if now_ms - self._told_at_ms >= TELL_S * 1000 and self.counts != self._told:
            self._told_at_ms, self._told = now_ms, self.counts.copy()
            self.log.info("events.counted", **self.counts)

    async def _spread(self, items: Sequence[_Item]) -> None:
        """Give each event to all sessions that want it; a failure is noted in its item."""
        queues: dict[SessionRef, list[_Item]] = {}
        # Read after the events arrived: a session that was created before an event was published is known here.
        known: dict[str, Subscribers] = {}
        for item in items:
            try:
                targets = await self._targets(item.event, known)
            except Exception as error:  # noqa: BLE001 - one event must not delay the others
                item.error = error
                continue
            self.counts["routed" if targets else "unwanted"] += 1
            for ref in targets:
                queues.setdefault(ref, []).append(item)
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
                if is_subscribed(agent, event.name)
                for session in sessions
            ]
            if len(self._wanted) >= WANTED_KEPT_MAX:
                self._wanted.clear()
            self._wanted[key] = kept = (subscribers, targets)
        return kept[1]

    async def _give(self, ref: SessionRef, queue: Sequence[_Item]) -> None:
        """Give a session these events, in their order: in one commit where all of them are new."""
        now_ms = self.context.clock.now_ms()
        # The artifacts of large events are stored concurrently: the others wait for the slowest one, not for all.
        bodies = await asyncio.gather(*(self._try_body(ref, item, now_ms) for item in queue))
        ready = [(item, body) for item, body in zip(queue, bodies, strict=True) if body is not None]
        if len(ready) > 1 and await self._accept_together(ref, ready, now_ms):
            return
        for item, body in ready:
            with self._noting(ref, item):
                reached(Edge.OBSERVER_INPUT_BEFORE)
                await accept(
                    self._committer, ref, item.event.input_id, body, at_ms=now_ms, writer=self._writer
                )
                reached(Edge.OBSERVER_INPUT_AFTER)

    async def _accept_together(
        self, ref: SessionRef, ready: Sequence[tuple[_Item, Body]], now_ms: int
    ) -> bool:
        """Whether all have become inputs. If not, each is to be accepted alone, which shows which of them fails."""
        given = [(item.event.input_id, body) for item, body in ready]
        try:
            reached(Edge.OBSERVER_INPUT_BEFORE)
            await accept_together(self._committer, ref, given, at_ms=now_ms, writer=self._writer)
            reached(Edge.OBSERVER_INPUT_AFTER)
        except Unavailable:
            for item, _ in ready:
                with self._noting(ref, item):
                    raise
        except Exception:  # noqa: BLE001 - each is accepted alone then, and fails with its own error
            return False
        return True

    @contextlib.contextmanager
    def _noting(self, ref: SessionRef, item: _Item) -> Iterator[None]:
        """Note in the item what goes wrong with an event in a session: one event must not delay the others."""
        try:
            yield
        except IdempotencyConflict:
            self.log.warning(
                "event.id_reused",
                session=str(ref),
                reason=f"{item.event.input_id} names another event, which remains",
            )
        except Exception as error:  # noqa: BLE001 - as above
            reason = error.message if isinstance(error, AnchorWatchError) else repr(error)[:200]
            self.log.warning("event.waits", session=str(ref), reason=reason)
            item.error = error

    async def _try_body(self, ref: SessionRef, item: _Item, now_ms: int) -> Body | None:
        made: list[Body] = []
        with self._noting(ref, item):
            made.append(await self._body(ref, item.event, now_ms))
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
