"""The first start of a mesh: the agents and sessions of the packs' starters, and a first turn. Repeating it has no effect."""

from __future__ import annotations

from collections.abc import Sequence

from anchorwatch.cli.api import Api
from anchorwatch.core.errors import NotFound
from anchorwatch.mesh.files import DataDir
from anchorwatch.mesh.state import MeshFile, SavedState
from anchorwatch.packs.port import Starter

# The services may have only just started.
RETRY_S = 20.0
FIRST_KEY = "anchorwatch-first-start"


def set_up(starters: Sequence[Starter], mesh: MeshFile, data: DataDir) -> None:
    """Create each starter's agent and session if missing, and request a turn on the very first start.

    Raises:
        AnchorWatchError: the gateway refuses or does not answer.
    """
    if SavedState.load(data).first_turn_asked:
        return
    with Api(mesh.api_url, mesh.token, retry_s=RETRY_S) as api:
        for starter in starters:
            _create(api, starter)
    remembered = SavedState.load(data)
    remembered.first_turn_asked = True
    remembered.save(data)


def _create(api: Api, starter: Starter) -> None:
    agent = starter.agent
    try:
        # A changed definition is kept.
        api.get(f"/api/agents/{agent.name}")
    except NotFound:
        api.put(f"/api/agents/{agent.name}", agent.model_dump(mode="json"))
    api.post("/api/sessions", {"name": starter.session, "agent": agent.name})
    # One key: an interrupted first start that is repeated requests one turn.
    api.post(f"/api/sessions/{starter.session}/trigger", {"reason": "first start of the mesh"}, key=FIRST_KEY)
