"""What a looker asks of whoever thinks (`think`)."""

from __future__ import annotations

from typing import Protocol

from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.facts import Observation
from anchorwatch.core.names import SessionRef
from anchorwatch.core.session import SessionState


class Thinker(Protocol):
    """One step of a turn."""

    async def observe(self, ref: SessionRef, agent: str, state: SessionState) -> Observation:
        """How the world is for an agent, by its name; looked at after this was called."""
        ...

    async def step(
        self, ref: SessionRef, state: SessionState, seen: Observation | None = None
    ) -> SessionState:
        """Take the running turn one step further, or to its end; returns the state with what was committed.

        ``seen``: an observation made for this step; None: it is made here.

        Raises:
            Fenced: somebody else holds the session. Refused: it was paused. Unavailable.
        """
        ...

    async def agent(self, ref: SessionRef, state: SessionState) -> AgentSpec:
        """The newest version of the session's agent."""
        ...
