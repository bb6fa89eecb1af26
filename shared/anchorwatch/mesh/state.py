"""``mesh.json``, with which a program finds a running mesh, and the state that a data directory keeps between starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from anchorwatch.mesh.files import DataDir, read_json, write_private_json

Report = Callable[[dict[str, Any]], None]
"""Sends an event to the person who started the mesh: ``ready``, ``note`` or ``failed``."""


@dataclass(frozen=True, slots=True)
class MeshFile:
    """A running mesh. ``pid`` is the supervisor; ``pids`` are the processes of each service and of the NATS server (``nats``)."""

    nats_url: str
    publisher_user: str
    publisher_password: str = field(repr=False)
    api_url: str
    token: str = field(repr=False)
    pid: int
    pids: dict[str, list[int]]
    started_at: str
    version: str


def write_mesh(data: DataDir, mesh: MeshFile) -> None:
    """Replace ``mesh.json``, readable by its owner only."""
    write_private_json(data.mesh, asdict(mesh))


def read_mesh(data: DataDir) -> MeshFile | None:
    """The content of ``mesh.json``; None if no mesh runs, or if it is just starting.

    The file is stale after a crash of the supervisor: `lock_holder` decides whether the mesh runs.
    """
    value = read_json(data.mesh)
    try:
        return None if value is None else MeshFile(**value)
    except TypeError:
        # Another version wrote it.
        return None


def remove_mesh(data: DataDir) -> None:
    """Remove ``mesh.json``: no mesh can be used here."""
    data.mesh.unlink(missing_ok=True)


@dataclass(slots=True)
class SavedState:
    """What a restart keeps: the ports, the number of processes of each service, and whether the first start is complete."""

    nats_port: int | None = None
    port: int | None = None
    counts: dict[str, int] = field(default_factory=dict)
    first_turn_asked: bool = False

    @classmethod
    def load(cls, data: DataDir) -> SavedState:
        value: dict[str, Any] = read_json(data.remembered) or {}
        return cls(**{name: value[name] for name in cls.__dataclass_fields__ if name in value})

    def save(self, data: DataDir) -> None:
        write_private_json(data.remembered, asdict(self))
