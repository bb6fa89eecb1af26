"""What each agent thinks with, by its version; made once, and closed together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from anchorwatch.core.agents import RULES, AgentSpec
from anchorwatch.core.session.spending import Prices
from anchorwatch.models import catalog
from anchorwatch.models.port import Model
from anchorwatch.models.profile import find as find_profile
from anchorwatch.models.tokens import counter_for
from anchorwatch.packs import registry as packs
from anchorwatch.packs.port import Pack
from anchorwatch.settings import Settings

from anchorwatch_planner.mind import Mind, Standing, Terms

Find = Callable[[str, str], Awaitable[AgentSpec]]
Build = Callable[[Settings, AgentSpec, Pack], Model]
"""Makes the model of (settings, agent, pack)."""

Following = Callable[[Model, Terms], Awaitable[Model]]
"""Makes a model's counts follow what its endpoint reports."""


class Minds:
    """Finds the mind of ``name`` or ``name@version`` in a workspace."""

    def __init__(self, find: Find, settings: Settings, build: Build, following: Following) -> None:
        self._find = find
        self._settings = settings
        self._build = build
        self._following = following
        self._made: dict[tuple[str, str], Mind] = {}
        self._standings: dict[tuple[str, str], Standing] = {}

    async def of(self, workspace: str, name: str) -> Mind:
        """The mind of an agent.

        Raises:
            NotFound: no such agent, or its pack is not installed. BadSettings: a model of it is not configured.
        """
        agent = await self._find(workspace, name)
        key = (workspace, agent.at_version)
        if key not in self._made:
            pack = packs.load(agent.pack)
            first, *others = [
                await self._one(agent, pack, model) for model in catalog.in_turn(self._settings, agent)
            ]
            self._made.setdefault(key, replace(first, others=tuple(others)))
        return self._made[key]

    async def close(self) -> None:
        for mind in self._made.values():
            for each in (mind, *mind.others):
                await each.model.close()

    async def _one(self, agent: AgentSpec, pack: Pack, name: str) -> Mind:
        granted = tuple(tool for tool in pack.tools(agent) if tool.name in agent.grants)
        terms = terms_of(self._settings, name)
        built = self._build(self._settings, agent.model_copy(update={"model": name}), pack)
        model = await self._following(built, terms)
        standing = self._standings.setdefault((terms.place, model.name), Standing())
        return Mind(agent, pack, granted, model, terms, standing)


def terms_of(settings: Settings, name: str) -> Terms:
    """On what terms the model of that name is asked.

    Raises:
        BadSettings: there is none.
    """
    if name == RULES:
        return Terms(name)
    own = catalog.effective(settings, name)
    profile = find_profile(own.model_profile)
    estimate = counter_for(own.model_name).described
    return Terms(
        name,
        place=own.model_url,
        profile=profile.name,
        is_measured=profile.counter != "estimate",
        counter=estimate if profile.counter == "estimate" else f"its own {profile.counter}, else {estimate}",
        context_tokens_max=catalog.bound(settings, name),
        timeout_s=own.model_timeout_s,
        prices=Prices(own.price_prompt, own.price_completion),
    )
