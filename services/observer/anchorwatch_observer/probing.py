"""Looks at the world by itself, every few seconds, and publishes what changed.

For each agent one observer of all does it, under a lease.
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

from anchorwatch_observer.looking import Lookout


class Probes:
    """A probe for every agent that has sessions."""

    def __init__(
        self, context: ServiceContext, agents: AgentDirectory, runtimes: PackRuntimes, lookout: Lookout
    ) -> None:
        self._context = context
        self._agents = agents
        self._runtimes = runtimes
        self._lookout = lookout
        monotonic = asyncio.get_running_loop().time
        self._leases = Leases(context.bus, context.identity, context.settings.lease_s, monotonic=monotonic)
        self._watching: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Until ``context.stopping``."""
        try:
            while not self._context.stopping.is_set():
                try:
                    self._watch(await self._bound())
                except AnchorWatchError as error:
                    self._context.log.warning("no new probe is begun", reason=error.message)
                await self._pause()
        finally:
            for task in self._watching.values():
                task.cancel()
            await asyncio.gather(*self._watching.values(), return_exceptions=True)
            await self._leases.release()

    async def _bound(self) -> set[tuple[str, str]]:
        return {
            (workspace, agent.name)
            for workspace in await self._agents.workspaces()
            for agent, _ in await self._agents.subscribers(workspace)
        }

    def _watch(self, wanted: set[tuple[str, str]]) -> None:
        for key in set(self._watching) - wanted:
            self._watching.pop(key).cancel()
        for key in wanted - set(self._watching):
            self._watching[key] = asyncio.create_task(self._probe(*key), name=f"probe {'/'.join(key)}")

    async def _probe(self, workspace: str, agent: str) -> None:
        """A slow pack holds up its own agent's probe alone."""
        before: Observation | None = None
        while not self._context.stopping.is_set():
            if not await self._leases.hold(_lease(workspace, agent)):
                # Whoever leads now knows what it saw; what was seen here is out of date.
                before = None
            else:
                try:
                    before = await self._probe_once(workspace, agent, before)
                except AnchorWatchError as error:
                    self._context.log.warning("a probe failed", agent=agent, reason=error.message)
                except Exception:
                    self._context.log.exception("a probe failed", agent=agent)
            await self._pause()

    async def _probe_once(self, workspace: str, agent: str, before: Observation | None) -> Observation:
        """Look, and publish what changed since ``before``; what could not be published is seen again next time."""
        now = await self._lookout.look(workspace, agent)
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
    """A change as a CloudEvent. Its id is the change's own, so that whoever sees it again publishes the same event."""
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
    # Within the stream's window, which all workspaces share, a message id counts for every subject.
    return Message(subject, payload, message_id=f"{subject}/{change.event_id}")


def _lease(workspace: str, agent: str) -> str:
    return f"probe-{sha256(f'{workspace}/{agent}'.encode()).hexdigest()[:16]}-{workspace}-{agent}"[:120]
