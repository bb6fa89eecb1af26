"""Routes each event to the sessions whose agents subscribe to it: one input for each, then the ack."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections import Counter, deque
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
from anchorwatch.service.events import Event, read_event, refused_input_id
from anchorwatch.service.keepalive import ACK_WAIT_S
from anchorwatch.service.letters import DeadLetters, address_of
from anchorwatch.service.worker import BatchWorker, Skip, Unhandleable
from anchorwatch.topology.streams import EVENTS
from anchorwatch.topology.subjects import EVENT_ALL

from anchorwatch_observer.probing import ProbeIds

BATCH = 64
DATA_BYTES_MAX = 16 * 1024
"""Event data up to this size is part of the input; larger data becomes an artifact."""
MALFORMED_LETTERS_MAX = 1_000
"""In an hour; further malformed events are only counted, since publishers can send any number of them."""
HOUR_MS = 3_600_000
ROUTES_MAX = 4_096
"""The event names whose subscribers are cached; publishers can use any number of names."""
SERVICE = "observer"
CONSUMER = ConsumerSpec(stream=EVENTS, filters=(EVENT_ALL,), durable="observer", ack_wait_s=ACK_WAIT_S)

Body = Mapping[str, Any]
Subscribers = Sequence[tuple[AgentSpec, list[str]]]


@dataclass(slots=True)
class _Item:
    """An event in progress. ``error``: why a session could not accept it."""

    event: Event
    error: Exception | None = None


class Router(BatchWorker[Event]):
    """Routes until ``context.stopping``. ``counts`` has the number of events by their outcome since the start."""

    ack_edge = Edge.OBSERVER_ACK_BEFORE
    retry_s_max = 1.0

    def __init__(
        self, context: ServiceContext, agents: AgentDirectory, letters: DeadLetters, ids: ProbeIds
    ) -> None:
        super().__init__(context, CONSUMER, concurrency=BATCH, letters=letters)
        self._ids = ids
        self._agents = agents
        self._writer = context.identity.execution_id
        self._committer = context.committer
        self._artifacts = ArtifactJournal(context.bus, self._committer, self._writer)
        self.counts: Counter[str] = Counter()
        self._malformed_at_ms: deque[int] = deque(maxlen=MALFORMED_LETTERS_MAX)
        self._routes: dict[tuple[str, str], tuple[Subscribers, list[SessionRef]]] = {}

    async def resumed(self) -> None:
        self.context.ready.set()

    def parse(self, stored: Stored) -> Event | Skip:
        event = read_event(stored)
        if event is None:
            # No dead letter: it belongs to no workspace, so no person would see it. No log: a publisher could fill it.
            self.counts["no_workspace"] += 1
            return Skip()
        return event

    def key(self, item: Event) -> str:
        return item.input_id

    def address(self, stored: Stored, item: Event | None) -> Address:
        workspace = item.workspace if item is not None else [*stored.subject.split("."), ""][2]
        return address_of(SERVICE, "event", workspace, EVENTS, stored)

    async def handle_together(self, items: Sequence[Event]) -> Sequence[Exception | None]:
        """Give each event to all subscribed sessions. The events of one session stay in order."""
        batch = [_Item(event) for event in items]
        await self._route(batch)
        return [item.error for item in batch]

    async def _route(self, items: Sequence[_Item]) -> None:
        """Give each event to all subscribed sessions; a failure is recorded in its item."""
        queues: dict[SessionRef, list[_Item]] = {}
        subscribers: dict[str, Subscribers] = {}
        for item in await self._of_known_workspaces(items):
            try:
                targets = await self._targets(item.event, subscribers)
            except Exception as error:  # noqa: BLE001 - one event must not delay the others
                item.error = error
                continue
            self.counts["routed" if targets else "unwanted"] += 1
            for ref in targets:
                queues.setdefault(ref, []).append(item)
        await asyncio.gather(*(self._give(ref, queue) for ref, queue in queues.items()))

    async def _of_known_workspaces(self, items: Sequence[_Item]) -> list[_Item]:
        """The events that have sessions to go to, perhaps. The others cost no request of their own (INV-112)."""
        try:
            # Read after the events arrived: it includes each session that was created before their publication.
            await self._agents.refresh()
        except Exception as error:  # noqa: BLE001 - each event then waits
            for item in items:
                item.error = error
            return []
        known = []
        for item in items:
            if not self._agents.knows(item.event.workspace):
                self.counts["unknown_workspace"] += 1
            elif item.event.problem:
                self._set_malformed(item)
            else:
                known.append(item)
        return known

    def _set_malformed(self, item: _Item) -> None:
        now_ms, times = self.context.clock.now_ms(), self._malformed_at_ms
        if len(times) == times.maxlen and now_ms - times[0] < HOUR_MS:
            self.counts["malformed_unlisted"] += 1
            return
        times.append(now_ms)
        self.counts["malformed"] += 1
        item.error = Unhandleable(item.event.problem)

    async def _targets(self, event: Event, by_workspace: dict[str, Subscribers]) -> list[SessionRef]:
        if event.workspace not in by_workspace:
            by_workspace[event.workspace] = await self._agents.subscribers(event.workspace)
        subscribers, key = by_workspace[event.workspace], (event.workspace, event.name)
        route = self._routes.get(key)
        if route is None or route[0] is not subscribers:
            targets = [
                SessionRef(event.workspace, session)
                for agent, sessions in subscribers
                if is_subscribed(agent, event.name)
                for session in sessions
            ]
            if len(self._routes) >= ROUTES_MAX:
                self._routes.clear()
            self._routes[key] = route = (subscribers, targets)
        return route[1]

    async def _give(self, ref: SessionRef, queue: Sequence[_Item]) -> None:
        """Give a session these events in order, in one commit if all are new."""
        now_ms = self.context.clock.now_ms()
        # The artifacts of large events are stored concurrently: the wait is for the slowest, not for the sum.
        bodies = await asyncio.gather(*(self._try_body(ref, item, now_ms) for item in queue))
        ready = [(item, body) for item, body in zip(queue, bodies, strict=True) if body is not None]
        if len(ready) > 1 and await self._accept_together(ref, ready, now_ms):
            return
        for item, body in ready:
            with self._recording_error(ref, item):
                await self._accept_one(ref, item.event, body, now_ms)

    async def _accept_one(self, ref: SessionRef, event: Event, body: Body, now_ms: int) -> None:
        """Accept an event, or list it as refused if the session has another event with its identity (INV-110)."""
        try:
            await self._accept(ref, event.input_id, body, now_ms)
        except IdempotencyConflict:
            if await self._ids.is_ours(event):
                # A probe published a change again, with newer data: the first one counts.
                self.log.info("event.repeated", session=str(ref), input=event.input_id)
                return
            self.log.warning(
                "event.refused", session=str(ref), input=event.input_id, reason="its id was used before"
            )
            self.counts["refused"] += 1
            why = f"another event used its id before (input {event.input_id})"
            refused = {**body, "settled": "refused", "why": why}
            await self._accept(ref, refused_input_id(event), refused, now_ms)

    async def _accept(self, ref: SessionRef, id_: str, body: Body, now_ms: int) -> None:
        reached(Edge.OBSERVER_INPUT_BEFORE)
        await accept(self._committer, ref, id_, body, at_ms=now_ms, writer=self._writer)
        reached(Edge.OBSERVER_INPUT_AFTER)

    async def _accept_together(
        self, ref: SessionRef, ready: Sequence[tuple[_Item, Body]], now_ms: int
    ) -> bool:
        """Whether all events became inputs. If not, the caller accepts each alone, which shows the one that fails."""
        inputs = [(item.event.input_id, body) for item, body in ready]
        try:
            reached(Edge.OBSERVER_INPUT_BEFORE)
            await accept_together(self._committer, ref, inputs, at_ms=now_ms, writer=self._writer)
            reached(Edge.OBSERVER_INPUT_AFTER)
        except Unavailable:
            for item, _ in ready:
                with self._recording_error(ref, item):
                    raise
        except Exception:  # noqa: BLE001 - the caller then accepts each alone
            return False
        return True

    @contextlib.contextmanager
    def _recording_error(self, ref: SessionRef, item: _Item) -> Iterator[None]:
        """Record an event's error in its item: one event must not delay the others."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - as above
            reason = error.message if isinstance(error, AnchorWatchError) else repr(error)[:200]
            self.log.warning("event.waits", session=str(ref), reason=reason)
            item.error = error

    async def _try_body(self, ref: SessionRef, item: _Item, now_ms: int) -> Body | None:
        bodies: list[Body] = []
        with self._recording_error(ref, item):
            bodies.append(await self._body(ref, item.event, now_ms))
        return bodies[0] if bodies else None

    async def _body(self, ref: SessionRef, event: Event, now_ms: int) -> Body:
        return input_body(
            "event",
            event.priority,
            text=event.text,
            source=event.source,
            type_=event.type,
            data=await self._data(ref, event, now_ms),
            attributes=event.attributes,
            body_sha256=event.body_sha256,
        )

    async def _data(self, ref: SessionRef, event: Event, now_ms: int) -> Any:  # noqa: ANN401 - JSON is of any type
        name, media_type = "event.json", "application/json"
        if isinstance(event.data, bytes):
            name, media_type, encoded = "event.bin", event.media_type, event.data
            size = {"size_bytes": len(encoded), "media_type": media_type}
            value: Any = {"base64": base64.b64encode(encoded).decode(), **size}
        else:
            encoded, value = json.dumps(event.data, ensure_ascii=False).encode(), event.data
        if len(encoded) <= DATA_BYTES_MAX:
            return value
        origin = Provenance(maker=event.input_id, acting_as=self._writer)
        reached(Edge.OBSERVER_ARTIFACT_BEFORE)
        artifact = await self._artifacts.keep(ref, name, media_type, encoded, origin, at_ms=now_ms)
        reached(Edge.OBSERVER_ARTIFACT_AFTER)
        reference: Mapping[str, Any] = {"id": artifact.artifact_id, "size_bytes": artifact.size_bytes}
        return {"artifact": reference}
