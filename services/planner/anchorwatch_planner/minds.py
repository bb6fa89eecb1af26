"""What each agent thinks with, by its version; made once, and closed together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from anchorwatch.core.agents import AgentSpec
from anchorwatch.models.port import Model
from anchorwatch.packs import registry as packs
from anchorwatch.packs.port import Pack
from anchorwatch.settings import Settings

from anchorwatch_planner.mind import Mind

Find = Callable[[str, str], Awaitable[AgentSpec]]
Build = Callable[[Settings, AgentSpec, Pack], Model]
"""Makes the model of (settings, agent, pack)."""

Following = Callable[[Model], Awaitable[Model]]
"""Makes a model's counts follow what its endpoint reports."""


class Minds:
    """Finds the mind of ``name`` or ``name@version`` in a workspace."""

    def __init__(self, find: Find, settings: Settings, build: Build, following: Following) -> None:
        self._find = find
        self._settings = settings
        self._build = build
        self._following = following
        self._made: dict[tuple[str, str], Mind] = {}

    async def of(self, workspace: str, name: str) -> Mind:
        """The mind of an agent.

        Raises:
            NotFound: no such agent, or its pack is not installed. BadSettings: its model is not configured.
        """
        agent = await self._find(workspace, name)
        key = (workspace, agent.at_version)
        if key not in self._made:
            pack = packs.load(agent.pack)
            granted = tuple(tool for tool in pack.tools(agent) if tool.name in agent.grants)
            model = await self._following(self._build(self._settings, agent, pack))
            self._made.setdefault(key, Mind(agent, pack, granted, model))
        return self._made[key]

    async def close(self) -> None:
        for mind in self._made.values():
            await mind.model.close()
