"""The subject of a crash test: a pack, one of its agents, and the agent's work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anchorwatch.cli import agent_files
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.errors import AnchorWatchError, BadInput, NotFound, NotInstalled
from anchorwatch.core.tools import ToolSpec
from anchorwatch.packs import registry
from anchorwatch.packs.port import HasExercise, HasStarter, Pack, PackEnvironment, Stimulus

HEARTBEAT_S = 5.0
DEFAULT_POOL = "default"


@dataclass(frozen=True, slots=True)
class Subject:
    """``messages``: the work in the agent's file, in turn; without it, the pack's exercise or a plain message."""

    pack: Pack
    agent: AgentSpec
    messages: Sequence[Stimulus] = ()

    @property
    def exercises(self) -> int:
        """The number of different exercises; 1 if it is unknown."""
        return len(self.messages) or 1

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """The granted tools of the pack that an executor runs; another service runs those of other pools."""
        granted = [tool for tool in self.pack.tools(self.agent) if tool.name in self.agent.grants]
        return [tool for tool in granted if tool.pool == DEFAULT_POOL]

    async def exercise(self, environment: PackEnvironment, number: int) -> Sequence[Stimulus]:
        """The inputs of the ``number``-th exercise, counted from 1."""
        if self.messages:
            return [self.messages[(number - 1) % len(self.messages)]]
        if isinstance(self.pack, HasExercise):
            return await self.pack.exercise(environment, number)
        return [Stimulus(f"crash test, message {number}: check the situation and act on it")]


def choose(pack: str | None, file: Path | None) -> Subject:
    """The subject that the command line names: an agent's file, a pack, or the one pack with a starter.

    Raises:
        BadInput: the file or pack does not exist, they do not match, or the pack needs an agent's file.
    """
    if file is None:
        chosen = _load(pack) if pack is not None else _only_starter()
        return _subject(chosen.starter().agent if isinstance(chosen, HasStarter) else _any_agent(chosen))
    try:
        agent, messages = agent_files.read(file), agent_files.read_exercise(file)
    except NotFound as error:
        raise BadInput(error.message) from None
    if pack not in (None, agent.pack):
        raise BadInput(f"{file} is an agent of the pack {agent.pack}, not of {pack}", hint="omit --pack")
    return _subject(agent, messages)


def _subject(agent: AgentSpec, messages: Sequence[Stimulus] = ()) -> Subject:
    pack = _load(agent.pack)
    pack.check(agent)
    # The pack's rules decide: a language model costs money and does not repeat its decisions.
    quick = agent.model_copy(update={"model": "rules", "fallbacks": (), "heartbeat_s": HEARTBEAT_S})
    return Subject(pack, quick, messages)


def _load(name: str) -> Pack:
    try:
        return registry.load(name)
    except NotFound as error:
        raise BadInput(error.message, hint=error.hint) from None


def _only_starter() -> Pack:
    found = [pack for pack in map(_load, registry.names()) if isinstance(pack, HasStarter)]
    if not registry.names():
        raise NotInstalled("a pack", "testing")
    if len(found) != 1:
        names = ", ".join(pack.name for pack in found) or "none"
        raise BadInput(
            f"no single pack has a starter agent (packs with one: {names})",
            hint="choose one with --pack NAME",
        )
    return found[0]


def _any_agent(pack: Pack) -> AgentSpec:
    """An agent that may do everything, for a pack that needs no configuration."""
    agent = AgentSpec(name=pack.name, pack=pack.name)
    try:
        pack.check(agent)
        return agent.model_copy(update={"grants": tuple(tool.name for tool in pack.tools(agent))})
    except AnchorWatchError as error:
        raise BadInput(
            f"the pack {pack.name} needs an agent: {error.message}", hint="pass its file with --agent FILE"
        ) from None
