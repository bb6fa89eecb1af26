"""Who may connect: a NATS user for each service, one for publishers, and the token of the HTTP API."""

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
"""May ask the server about itself, and sees no message of the mesh."""

SECRET_BYTES = 24


def companions() -> tuple[str, ...]:
    """The services that installed packs add to a mesh, by name."""
    installed = {entry.name for entry in entry_points(group=GROUP)}
    return tuple(sorted(installed - set(SERVICES)))


def all_users() -> tuple[str, ...]:
    """Every NATS user of a mesh."""
    return (*mesh_users(), PUBLISHER, SYSTEM)


def mesh_users() -> tuple[str, ...]:
    """The users of the mesh's own NATS account."""
    return (*SERVICES, *companions(), CLI)


@dataclass(frozen=True, slots=True)
class Credentials:
    """Passwords by user, and the API's bearer token."""

    passwords: dict[str, str]
    token: str

    def __repr__(self) -> str:
        return "Credentials(…)"

    @classmethod
    def load(cls, data: DataDir) -> Credentials | None:
        """Those of the data directory; None when none were made yet.

        Raises:
            Refused: the file cannot be used.
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
        """Those of the data directory; what is missing is made and kept. ``token``: the API's, where a setting gives it."""
        found = cls.load(data)
        passwords = dict(found.passwords) if found is not None else {}
        for user in all_users():
            passwords.setdefault(user, secrets.token_urlsafe(SECRET_BYTES))
        kept = found.token if found is not None else secrets.token_urlsafe(SECRET_BYTES)
        made = cls(passwords, token or kept)
        if found != made:
            write_private_json(data.credentials, made._as_json())
        return made

    def _as_json(self) -> dict[str, Any]:
        return {"token": self.token, "users": self.passwords}
