"""The connected runtimes of packs: one for each agent version that this process serves."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping

from anchorwatch.bus.port import Bus
from anchorwatch.core.agents import AgentSpec
from anchorwatch.packs import recording, registry
from anchorwatch.packs.port import Pack, PackEnvironment, PackRuntime
from anchorwatch.settings import PREFIX

CLOSE_S_MAX = 2.0


def pack_prefix(pack: str) -> str:
    """The prefix of a pack's settings in the environment."""
    return f"{PREFIX}{pack.upper().replace('-', '_')}_"


def pack_settings(pack: str, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The settings of a pack: the variable ``ANCHORWATCH_<PACK>_<NAME>`` is its setting ``name``."""
    prefix = pack_prefix(pack)
    return {key[len(prefix) :].lower(): value for key, value in environment.items() if key.startswith(prefix)}


class PackRuntimes:
    """Connects each runtime at its first use, and keeps it. ``load`` returns a pack by its name."""

    def __init__(self, bus: Bus, load: Callable[[str], Pack] = registry.load) -> None:
        self._bus = bus
        self._load = load
        self._connected: dict[tuple[str, str], PackRuntime] = {}
        self._connecting: dict[tuple[str, str], asyncio.Lock] = {}

    async def get(self, workspace: str, agent: AgentSpec) -> PackRuntime:
        """The runtime for this version of the agent. Raises any error of the pack's ``connect``."""
        key = (workspace, agent.at_version)
        async with self._connecting.setdefault(key, asyncio.Lock()):
            if key not in self._connected:
                environment = PackEnvironment(self._bus, workspace, agent, pack_settings(agent.pack))
                runtime = await self._load(agent.pack).connect(environment)
                self._connected[key] = recording.recorded(runtime, os.environ)
            return self._connected[key]

    async def close(self) -> None:
        """Close all runtimes; a failing or hanging one does not affect the others."""
        connected, self._connected = self._connected, {}
        for runtime in connected.values():
            # A pack may raise any error, and this process is about to end.
            with contextlib.suppress(Exception):
                async with asyncio.timeout(CLOSE_S_MAX):
                    await runtime.close()
