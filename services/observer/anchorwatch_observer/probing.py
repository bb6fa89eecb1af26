"""Observes for each agent every ``probe_interval_s``, and publishes the changes as events.

One observer probes for an agent at a time, under a lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from hashlib import sha256

from anchorwatch.bus.port import Message
from anchorwatch.codec.plain import plain
from anchorwatch.core.errors import AnchorWatchError
from anchorwatch.core.facts import Observation
from anchorwatch.core.times import iso
from anchorwatch.edges import Edge, reached
from anchorwatch.packs.port import Probed
from anchorwatch.service.agents import AgentDirectory
from anchorwatch.service.context import ServiceContext
from anchorwatch.service.leases import Leases
from anchorwatch.service.runtimes import PackRuntimes
from anchorwatch.topology import subjects

from anchorwatch_observer.looking import Observations


class Prober:
    """Runs a probe for each agent that has sessions."""

    def __init__(
        self,
        context: ServiceContext,
        agents: AgentDirectory,
        runtimes: PackRuntimes,
        observations: Observations,
    ) -> None:
        self._context = context
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
            reached(Edge.OBSERVER_CHANGE_BEFORE)
            await self._context.bus.publish(as_event(workspace, change, now.at_ms))
            reached(Edge.OBSERVER_CHANGE_AFTER)
        return now

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._context.settings.probe_interval_s):
                await self._context.stopping.wait()


def as_event(workspace: str, change: Probed, at_ms: int) -> Message:
    """A change as a CloudEvent with the id of the change, so that a repeated publication is the same event."""
    subject = subjects.event(workspace, change.source, change.type)
    content: Mapping[str, object] = {
        "specversion": "1.0",
        "id": change.event_id,
        "source": f"/{workspace}/{change.source}",
        "type": change.type,
        "time": iso(at_ms),
        "datacontenttype": "application/json",
        "priority": change.priority,
        "data": plain(dict(change.data)),
    }
    payload = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    # All subjects of the stream share one deduplication window, so the message id contains the subject.
    return Message(subject, payload, message_id=f"{subject}/{change.event_id}")


def _lease(workspace: str, agent: str) -> str:
    return f"probe-{sha256(f'{workspace}/{agent}'.encode()).hexdigest()[:16]}-{workspace}-{agent}"[:120]
