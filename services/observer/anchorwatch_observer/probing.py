"""Observes for each agent every ``probe_interval_s``, and publishes the changes as events.

One observer probes for an agent at a time, under a lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import secrets
from collections.abc import Mapping
from hashlib import sha256

from anchorwatch.bus.port import Bus, KeyExists, Message
from anchorwatch.codec.plain import plain
from anchorwatch.core.errors import AnchorWatchError, IdempotencyConflict, Unavailable
from anchorwatch.core.facts import Observation
from anchorwatch.core.times import iso
from anchorwatch.edges import Edge, reached
from anchorwatch.packs.port import Probed
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.event_publisher import EventPublisher
from anchorwatch.service.events import Event
from anchorwatch.service.leases import Leases
from anchorwatch.service.runtimes import PackRuntimes
from anchorwatch.topology import subjects
from anchorwatch.topology.streams import LEASES_BUCKET

from anchorwatch_observer.looking import Observations

PROBE_KEY = "key.probes"
"""The key of `ProbeIds` in the bucket of leases."""
_KEY_BYTES = 32
_SEAL_MARK = "~"
_SEAL_CHARS = 24


class Prober:
    """Runs a probe for each agent that has sessions."""

    def __init__(
        self,
        context: ServiceContext,
        agents: AgentDirectory,
        runtimes: PackRuntimes,
        observations: Observations,
        ids: ProbeIds,
    ) -> None:
        self._context = context
        self._publisher = EventPublisher(context.bus)
        self._ids = ids
        self._agents = agents
        self._runtimes = runtimes
        self._observations = observations
        monotonic = asyncio.get_running_loop().time
        self._leases = Leases(context.bus, context.identity, context.settings.lease_s, monotonic=monotonic)
        self._probes: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Probe until ``context.stopping``."""
        try:
            while not self._context.stopping.is_set():
                try:
                    self._start_and_stop(await self._agents_with_sessions())
                except AnchorWatchError as error:
                    self._context.log.warning("probes.update_failed", reason=error.message)
                await self._pause()
        finally:
            for task in self._probes.values():
                task.cancel()
            await asyncio.gather(*self._probes.values(), return_exceptions=True)
            await self._leases.release()

    async def _agents_with_sessions(self) -> set[tuple[str, str]]:
        return {
            (workspace, agent.name)
            for workspace in await self._agents.workspaces()
            for agent, _ in await self._agents.subscribers(workspace)
        }

    def _start_and_stop(self, wanted: set[tuple[str, str]]) -> None:
        for key in set(self._probes) - wanted:
            self._probes.pop(key).cancel()
        for key in wanted - set(self._probes):
            self._probes[key] = asyncio.create_task(self._probe(*key), name=f"probe {'/'.join(key)}")

    async def _probe(self, workspace: str, agent: str) -> None:
        """Probe for one agent: a slow pack delays only its own agent."""
        before: Observation | None = None
        while not self._context.stopping.is_set():
            if not await self._leases.hold(_lease(workspace, agent)):
                # Another observer leads now; the observation of this one is outdated.
                before = None
            else:
                try:
                    before = await self._probe_once(workspace, agent, before)
                except AnchorWatchError as error:
                    self._context.log.warning("probe.failed", agent=agent, reason=error.message)
                except Exception:
                    self._context.log.exception("probe.failed", agent=agent)
            await self._pause()

    async def _probe_once(self, workspace: str, agent: str, before: Observation | None) -> Observation:
        """Observe, and publish the changes since ``before``; after a failure, the next probe publishes them."""
        now = await self._observations.observe(workspace, agent)
        spec = await self._agents.get(workspace, agent)
        runtime = await self._runtimes.get(workspace, spec)
        for change in runtime.changes(before, now):
            event = as_event(workspace, change, await self._ids.of(workspace, change), now.at_ms)
            reached(Edge.OBSERVER_CHANGE_BEFORE)
            # A repeated publication may have newer data; the first one counts.
            with contextlib.suppress(IdempotencyConflict):
                await self._publisher.publish(event)
            reached(Edge.OBSERVER_CHANGE_AFTER)
        return now

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._context.settings.probe_interval_s):
                await self._context.stopping.wait()


class ProbeIds:
    """The ids of the events that probes publish: the id of the change, sealed with a key that only the mesh can read.

    A publisher may write any id into an event. If it could guess one of ours, it could use it first, and the probe's event
    would be taken for a repetition (INV-109). All observers share the key, so that a change has one id from any of them.
    With a new key (the bucket of leases was lost), the changes that still hold are published once more.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._cached: bytes | None = None

    async def of(self, workspace: str, change: Probed) -> str:
        """The event id of a change.

        Raises:
            Unavailable.
        """
        return _seal(await self._key(), workspace, change.source, change.event_id)

    async def is_ours(self, event: Event) -> bool:
        """Whether a probe of this mesh published the event.

        Raises:
            Unavailable.
        """
        plain_id, separator, _ = event.event_id.rpartition(_SEAL_MARK)
        if not separator:
            return False
        sealed = _seal(await self._key(), event.workspace, event.source, plain_id)
        return hmac.compare_digest(sealed.encode(), event.event_id.encode())

    async def _key(self) -> bytes:
        if self._cached is None:
            bucket = await self._bus.bucket(LEASES_BUCKET)
            with contextlib.suppress(KeyExists):
                await bucket.create(PROBE_KEY, secrets.token_bytes(_KEY_BYTES))
            entry = await bucket.get(PROBE_KEY)
            if entry is None or not entry.value:
                raise Unavailable("the key of the probes' event ids cannot be read yet")
            self._cached = entry.value
        return self._cached


def _seal(key: bytes, workspace: str, source: str, change_id: str) -> str:
    proof = hmac.digest(key, f"{workspace}\x1f{source}\x1f{change_id}".encode(), "sha256")
    return f"{change_id}{_SEAL_MARK}{proof.hex()[:_SEAL_CHARS]}"


def as_event(workspace: str, change: Probed, event_id: str, at_ms: int) -> Message:
    """A change as a CloudEvent."""
    content: Mapping[str, object] = {
        "specversion": "1.0",
        "id": event_id,
        "source": f"/{workspace}/{change.source}",
        "type": change.type,
        "time": iso(at_ms),
        "datacontenttype": "application/json",
        "priority": change.priority,
        "data": plain(dict(change.data)),
    }
    payload = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    return Message(subjects.event(workspace, change.source, change.type), payload)


def _lease(workspace: str, agent: str) -> str:
    return f"probe-{sha256(f'{workspace}/{agent}'.encode()).hexdigest()[:16]}-{workspace}-{agent}"[:120]
