"""Credentials without a mesh: for containers, where an ``init`` container makes them into a volume."""

from __future__ import annotations

from anchorwatch.core.errors import NotFound
from anchorwatch.mesh import nats_server
from anchorwatch.mesh.credentials import Credentials, all_users, mesh_users
from anchorwatch.mesh.files import PRIVATE_DIR, DataDir, write_private
from anchorwatch.mesh.lock import lock_holder
from anchorwatch.mesh.state import read_mesh
from anchorwatch.settings import PREFIX
from anchorwatch.topology.subjects import EVENT_ALL

NATS_PORT = 4222


def init(data: DataDir, nats_host: str) -> str:
    """Write the configuration and the credentials; what is there already stays. Returns a text for people."""
    data.make()
    made = Credentials.load_or_make(data)
    write_private(data.nats_config, nats_server.config_text(made))
    for name in ("credentials", "env"):
        (data.root / name).mkdir(mode=PRIVATE_DIR, exist_ok=True)
    for user, password in (*made.passwords.items(), ("token", made.token)):
        # One file for each: a container is given its own, by ANCHORWATCH_NATS_PASSWORD_FILE.
        write_private(data.root / "credentials" / user, password + "\n")
    for user in mesh_users():
        write_private(data.root / "env" / f"{user}.env", _environment(made, user, nats_host))
    return (
        f"credentials and nats.conf are in {data.root}\n"
        f"print the credentials of a publisher (it may publish {EVENT_ALL}, and nothing else) with:\n"
        f"  anchorwatch credentials publisher --data-dir {data.root}\n"
        "in compose: docker compose run --rm init credentials publisher --data-dir /run/anchorwatch"
    )


def credentials(data: DataDir, user: str) -> dict[str, str]:
    """The credentials of a user, or of the API (``api``).

    Raises:
        NotFound: none were made here, or there is no such user.
    """
    made = Credentials.load(data)
    if made is None:
        raise NotFound(
            f"no credentials in {data.root}",
            hint="`anchorwatch up` or `anchorwatch init` creates them",
        )
    mesh = read_mesh(data) if lock_holder(data) is not None else None
    if user == "api":
        return ({"url": mesh.api_url} if mesh is not None else {}) | {"token": made.token}
    if user not in made.passwords:
        raise NotFound(f"unknown user {user!r}", hint=f"known users: {', '.join((*all_users(), 'api'))}")
    where = {"nats_url": mesh.nats_url} if mesh is not None else {}
    return where | {"user": user, "password": made.passwords[user]}


def _environment(made: Credentials, user: str, nats_host: str) -> str:
    """An environment file, as ``docker run --env-file`` and systemd take it."""
    values = {
        "NATS_URL": f"nats://{nats_host}:{NATS_PORT}",
        "NATS_USER": user,
        "NATS_PASSWORD": made.passwords[user],
    }
    if user == "gateway":
        values["TOKEN"] = made.token
    return "".join(f"{PREFIX}{name}={value}\n" for name, value in values.items())
