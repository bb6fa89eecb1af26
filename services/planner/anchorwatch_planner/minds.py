"""What each agent thinks with, by its version; made once, and closed together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from anchorwatch.core.agents import AgentSpec
from anchorwatch.models import registry as models
from anchorwatch.packs import registry as packs
from anchorwatch.settings import Settings

from anchorwatch_planner.mind import Mind

Find = Callable[[str, str], Awaitable[AgentSpec]]


class Minds:
    """Finds the mind of ``name`` or ``name@version`` in a workspace."""

    def __init__(self, find: Find, settings: Settings) -> None:
        self._find = find
        self._settings = settings
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
            self._made[key] = Mind(agent, pack, granted, models.build(self._settings, agent, pack))
        return self._made[key]

    async def close(self) -> None:
        for mind in self._made.values():
            await mind.model.close()
