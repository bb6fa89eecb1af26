"""What is put to the test: a pack, an agent of it, and what this agent is given to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anchorwatch.cli import agent_files
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.errors import AnchorWatchError, BadInput, NotFound, NotInstalled
from anchorwatch.packs import registry
from anchorwatch.packs.port import HasExercise, HasStarter, Pack, PackEnvironment, Stimulus

HEARTBEAT_S = 5.0


@dataclass(frozen=True, slots=True)
class Subject:
    """``told``: what the agent's file has it told, in turn; without any, the pack says, or a plain message does."""

    pack: Pack
    agent: AgentSpec
    told: Sequence[Stimulus] = ()

    @property
    def exercises(self) -> int:
        """How many there are before they begin anew; 1 where that is not known."""
        return len(self.told) or 1

    async def exercise(self, environment: PackEnvironment, number: int) -> Sequence[Stimulus]:
        """What the session is told in the ``number``-th exercise, from 1."""
        if self.told:
            return [self.told[(number - 1) % len(self.told)]]
        if isinstance(self.pack, HasExercise):
            return await self.pack.exercise(environment, number)
        return [Stimulus(f"crash test, message {number}: look, and do what is to be done")]


def choose(pack: str | None, file: Path | None) -> Subject:
    """The subject that the command line names: an agent's file, a pack, or the one pack with a starter.

    Raises:
        BadInput: there is no such file or pack, they do not fit together, or the pack needs an agent's file.
    """
    if file is None:
        chosen = _load(pack) if pack is not None else _only_starter()
        return _subject(chosen.starter().agent if isinstance(chosen, HasStarter) else _any_agent(chosen))
    try:
        agent, told = agent_files.read(file), agent_files.read_exercise(file)
    except NotFound as error:
        raise BadInput(error.message) from None
    if pack not in (None, agent.pack):
        raise BadInput(f"{file} is an agent of the pack {agent.pack}, not of {pack}", hint="leave --pack out")
    return _subject(agent, told)


def _subject(agent: AgentSpec, told: Sequence[Stimulus] = ()) -> Subject:
    pack = _load(agent.pack)
    pack.check(agent)
    # The pack's own rules decide: a language model would not do the same twice, and be paid for it.
    quick = agent.model_copy(update={"model": "rules", "fallbacks": (), "heartbeat_s": HEARTBEAT_S})
    return Subject(pack, quick, told)


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
        raise BadInput(f"name a pack: packs with an agent to start with: {names}", hint="--pack NAME")
    return found[0]


def _any_agent(pack: Pack) -> AgentSpec:
    """An agent that may do everything, for a pack that needs no configuration."""
    agent = AgentSpec(name=pack.name, pack=pack.name)
    try:
        pack.check(agent)
        return agent.model_copy(update={"grants": tuple(tool.name for tool in pack.tools(agent))})
    except AnchorWatchError as error:
        raise BadInput(
            f"the pack {pack.name} needs an agent: {error.message}", hint="name its file with --agent FILE"
        ) from None
