"""The mesh that a verb uses: the one that runs on a data directory, or one elsewhere, by its address."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from anchorwatch.cli.api import Api
from anchorwatch.cli.running import running_mesh
from anchorwatch.core.errors import BadInput
from anchorwatch.core.names import check_name
from anchorwatch.mesh.credentials import CLI, Credentials
from anchorwatch.mesh.files import DataDir
from anchorwatch.mesh.lock import lock_holder
from anchorwatch.settings import Settings, load


def open_api(data_dir: Path | None, url: str | None, token: str | None, workspace: str | None = None) -> Api:
    """A client: of ``--url``, else of ``--data-dir``, else of the settings' ``url``, else of the settings' data directory.

    ``workspace``: by default that of the settings.

    Raises:
        BadInput: both were given, a token is missing, or one of them cannot be used.
        Unavailable: no mesh runs on the data directory.
    """
    if url is not None and data_dir is not None:
        raise BadInput("--url and --data-dir select two meshes", hint="give one of them")
    settings = load()
    if workspace is not None:
        check_name(workspace, "workspace name")
    # Sent only when it was chosen: the gateway has a default of its own.
    elif "workspace" in settings.model_fields_set:
        workspace = settings.workspace
    if url is None and data_dir is None:
        url = settings.url
    if url is not None:
        return Api(_checked(url), _sendable(token or _token(settings)), workspace=workspace)
    mesh = running_mesh(DataDir.at(data_dir or settings.data_dir))
    return Api(mesh.api_url, _sendable(token or mesh.token), workspace=workspace)


def bus_settings(data_dir: Path | None, user: str = CLI) -> Settings:
    """Settings that connect to the bus of a mesh: as ``user`` of the one on the data directory, else as they are given.

    Raises:
        Unavailable: no mesh runs on the data directory, and no NATS user is given.
    """
    settings = load()
    data = DataDir.at(data_dir or settings.data_dir)
    credentials = Credentials.load(data)
    if lock_holder(data) is not None and credentials is not None:
        given = {"nats_url": running_mesh(data).nats_url}
    elif "nats_url" in settings.model_fields_set and (
        credentials is not None or settings.nats_user is not None
    ):
        # In containers: the server has an address, and `init` made the credentials.
        given = {"nats_url": settings.nats_url}
    else:
        running_mesh(data)
        given = {}
    if credentials is not None:
        given |= {"nats_user": user, "nats_password": credentials.passwords[user]}
    return load(**given)


def _token(settings: Settings) -> str:
    if settings.token is None:
        raise BadInput("no token for the mesh at --url", hint="give --token or ANCHORWATCH_TOKEN")
    return settings.token.get_secret_value()


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        httpx2.URL(url)
    except (ValueError, httpx2.InvalidURL):
        usable = False
    if not usable:
        raise BadInput(f"{url!r} is not a valid URL", hint="http://HOST:PORT or https://HOST")
    return url


def _sendable(token: str) -> str:
    """The error does not repeat the token: it is a secret, if a wrong one."""
    if not (token.isascii() and token.isprintable()) or token != token.strip():
        raise BadInput(
            "the token is not valid: it has characters that a token cannot have", hint="copy the whole token"
        )
    return token
