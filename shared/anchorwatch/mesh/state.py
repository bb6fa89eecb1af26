"""``mesh.json``: what a program needs to use a running mesh. And what a data directory remembers from one start to the next."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from anchorwatch.mesh.files import DataDir, read_json, write_private_json


@dataclass(frozen=True, slots=True)
class MeshFile:
    """A running mesh. ``pids``: the processes of each service, the NATS server (``nats``) included; ``pid``: the supervisor."""

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
    """Write it, for its owner only."""
    write_private_json(data.mesh, asdict(mesh))


def read_mesh(data: DataDir) -> MeshFile | None:
    """Read it; None when there is none (nothing runs, or a mesh is just starting).

    After a crash of the supervisor it is stale: whoever wants to know whether the mesh runs asks the lock.
    """
    value = read_json(data.mesh)
    try:
        return None if value is None else MeshFile(**value)
    except TypeError:
        # Written by another version: of no use to this one.
        return None


def remove_mesh(data: DataDir) -> None:
    """Say that nothing can be used here any more."""
    data.mesh.unlink(missing_ok=True)


@dataclass(slots=True)
class Remembered:
    """What a restart keeps: the ports, how many of each service, and whether the first start was completed."""

    nats_port: int | None = None
    port: int | None = None
    counts: dict[str, int] = field(default_factory=dict)
    first_turn_asked: bool = False

    @classmethod
    def load(cls, data: DataDir) -> Remembered:
        value: dict[str, Any] = read_json(data.remembered) or {}
        return cls(**{name: value[name] for name in cls.__dataclass_fields__ if name in value})

    def save(self, data: DataDir) -> None:
        write_private_json(data.remembered, asdict(self))
