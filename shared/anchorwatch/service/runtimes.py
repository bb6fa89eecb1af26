"""The live halves of packs: one for each version of an agent that this process works for."""

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
    """How the names of a pack's own settings begin in the environment."""
    return f"{PREFIX}{pack.upper().replace('-', '_')}_"


def pack_settings(pack: str, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """A pack's own settings: ``ANCHORWATCH_<PACK>_<NAME>`` in the environment is its setting ``name``."""
    prefix = pack_prefix(pack)
    return {key[len(prefix) :].lower(): value for key, value in environment.items() if key.startswith(prefix)}


class Runtimes:
    """Connects when it is first asked, and keeps the connection. ``load`` finds a pack by name."""

    def __init__(self, bus: Bus, load: Callable[[str], Pack] = registry.load) -> None:
        self._bus = bus
        self._load = load
        self._connected: dict[tuple[str, str], PackRuntime] = {}
        self._connecting: dict[tuple[str, str], asyncio.Lock] = {}

    async def get(self, workspace: str, agent: AgentSpec) -> PackRuntime:
        """The runtime of this version of the agent; whatever ``connect`` raises when it cannot be had."""
        key = (workspace, agent.at_version)
        async with self._connecting.setdefault(key, asyncio.Lock()):
            if key not in self._connected:
                environment = PackEnvironment(self._bus, workspace, agent, pack_settings(agent.pack))
                runtime = await self._load(agent.pack).connect(environment)
                self._connected[key] = recording.recorded(runtime, os.environ)
            return self._connected[key]

    async def close(self) -> None:
        """Close all of them; one that fails or hangs keeps no other open."""
        connected, self._connected = self._connected, {}
        for runtime in connected.values():
            # A pack may raise anything, and this process is about to end.
            with contextlib.suppress(Exception):
                async with asyncio.timeout(CLOSE_S_MAX):
                    await runtime.close()
