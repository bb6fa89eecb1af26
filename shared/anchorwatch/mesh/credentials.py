"""Credentials: a NATS user for each service, one for publishers, and the token of the HTTP API."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from anchorwatch.core.errors import Refused
from anchorwatch.mesh.files import DataDir, read_json, write_private_json
from anchorwatch.service.runner import GROUP

SERVICES = ("observer", "planner", "executor", "memory", "notifier", "gateway")
CLI = "cli"
PUBLISHER = "publisher"
SYSTEM = "system"
"""May query the server's state, and receives no message of the mesh."""

SECRET_BYTES = 24


def pack_services() -> tuple[str, ...]:
    """The names of the services that installed packs add to a mesh."""
    installed = {entry.name for entry in entry_points(group=GROUP)}
    return tuple(sorted(installed - set(SERVICES)))


def all_users() -> tuple[str, ...]:
    """Every NATS user of a mesh."""
    return (*mesh_users(), PUBLISHER, SYSTEM)


def mesh_users() -> tuple[str, ...]:
    """The users of the mesh's own NATS account."""
    return (*SERVICES, *pack_services(), CLI)


@dataclass(frozen=True, slots=True)
class Credentials:
    """Passwords by user, and the API's bearer token."""

    passwords: dict[str, str]
    token: str

    def __repr__(self) -> str:
        return "Credentials(…)"

    @classmethod
    def load(cls, data: DataDir) -> Credentials | None:
        """The credentials of the data directory; None if there are none yet.

        Raises:
            Refused: the file cannot be read or is damaged.
        """
        value = read_json(data.credentials)
        if value is None:
            return None
        passwords, token = value.get("users"), value.get("token")
        if not isinstance(passwords, dict) or not isinstance(token, str) or not token:
            raise Refused(
                f"{data.credentials} is damaged",
                hint="restore it from a copy, or move it away to get new ones",
            )
        return cls(passwords, token)

    @classmethod
    def load_or_make(cls, data: DataDir, token: str | None = None) -> Credentials:
        """The credentials of the data directory; missing ones are generated and stored. ``token`` replaces the API's token."""
        stored = cls.load(data)
        passwords = dict(stored.passwords) if stored is not None else {}
        for user in all_users():
            passwords.setdefault(user, secrets.token_urlsafe(SECRET_BYTES))
        stored_token = stored.token if stored is not None else secrets.token_urlsafe(SECRET_BYTES)
        credentials = cls(passwords, token or stored_token)
        if stored != credentials:
            write_private_json(data.credentials, credentials._as_json())
        return credentials

    def _as_json(self) -> dict[str, Any]:
        return {"token": self.token, "users": self.passwords}
