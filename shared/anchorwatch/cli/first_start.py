"""The first start of a mesh: the fleet agent, its session, and a first turn. Done again, it changes nothing."""

from __future__ import annotations

from anchorwatch.cli.api import Api
from anchorwatch.core.errors import NotFound
from anchorwatch.mesh.files import DataDir
from anchorwatch.mesh.state import MeshFile, Remembered
from anchorwatch.packs.fleet import SESSION, default_agent

# The first try may meet services that have only just begun.
RETRY_S = 20.0
FIRST_KEY = "anchorwatch-first-start"


def set_up_fleet(mesh: MeshFile, data: DataDir) -> None:
    """Make the fleet agent and its session where they are missing, and ask for a turn the very first time.

    Raises:
        AnchorWatchError: the gateway refuses, or stays away.
    """
    if Remembered.load(data).first_turn_asked:
        return
    spec = default_agent()
    with Api(mesh.api_url, mesh.token, retry_s=RETRY_S) as api:
        try:
            # Whoever has changed it since wants to keep that.
            api.get(f"/api/agents/{spec.name}")
        except NotFound:
            api.put(f"/api/agents/{spec.name}", spec.model_dump(mode="json"))
        api.post("/api/sessions", {"name": SESSION, "agent": spec.name})
        # One key: however often a first start is interrupted here, it is one wish for one turn.
        api.post(f"/api/sessions/{SESSION}/trigger", {"reason": "the mesh was started"}, key=FIRST_KEY)
    remembered = Remembered.load(data)
    remembered.first_turn_asked = True
    remembered.save(data)
