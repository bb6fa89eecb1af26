"""The start of a mesh on a data directory: lock, credentials, ports, supervisor."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from anchorwatch.core.errors import OtherStoreFormat
from anchorwatch.mesh import ports
from anchorwatch.mesh.control import ControlServer, socket_path
from anchorwatch.mesh.credentials import Credentials
from anchorwatch.mesh.files import PRIVATE_UMASK, DataDir
from anchorwatch.mesh.lock import Holder, acquire_lock
from anchorwatch.mesh.mesh_settings import MeshSettings
from anchorwatch.mesh.nats_server import LOOPBACK
from anchorwatch.mesh.roster import Roster, check_count, default_services
from anchorwatch.mesh.state import Report, SavedState, remove_mesh
from anchorwatch.mesh.supervisor import Supervisor
from anchorwatch.service import logs
from anchorwatch.service.provisioning import check_marker
from anchorwatch.settings import Settings
from anchorwatch.topology.streams import journal_stream


@dataclass(frozen=True, slots=True)
class StartOptions:
    """How to start a mesh. A port of None is the default, 0 is any free port. ``only``: run no other services.

    ``kept``: the settings that the data directory keeps for the next start. ``programs`` as in `Roster`.
    """

    data: DataDir
    settings: Settings
    kept: MeshSettings
    nats_port: int | None = None
    port: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    bare: bool = False
    only: tuple[str, ...] = ()
    programs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    version: str = ""


def supervise(options: StartOptions, report: Report) -> int:
    """Run a mesh until a stop request; returns the exit code.

    Raises:
        Refused: a mesh already runs on this data, or a port is taken.
        OtherStoreFormat: another format made the store; nothing was written to it.
        StartFailed: a process did not become ready. All processes have been stopped.
    """
    data = options.data
    os.umask(PRIVATE_UMASK)
    control_path = socket_path(data)
    # Held until this process ends: while the lock is free, no process of this mesh runs.
    lock = acquire_lock(data, Holder(os.getpid(), str(control_path)))
    # A supervisor that crashed leaves its file.
    remove_mesh(data)
    log = logs.configure(options.settings, service="supervisor")
    try:
        check_store(data)
    except OtherStoreFormat as error:
        log.error("store.refused", code=error.code, reason=error.message)  # noqa: TRY400 - the text suffices
        raise
    roster, saved = _prepare(options, report)
    for secret in (*roster.credentials.passwords.values(), roster.credentials.token):
        logs.hide(secret)
    services = options.only or default_services(bare=options.bare)

    async def run() -> int:
        # Created inside its event loop.
        supervisor = Supervisor(
            roster, services, saved, report, log, lock, settings=options.kept, version=options.version
        )
        return await supervisor.run(ControlServer(control_path, supervisor.answer))

    return asyncio.run(run())


def check_store(data: DataDir) -> None:
    """Check the format of the store before its server starts. The services check an unreadable file.

    Raises:
        OtherStoreFormat: the journal has another format.
    """
    for path in data.nats_store.glob(f"jetstream/*/streams/{journal_stream()}/meta.inf"):
        try:
            config = json.loads(path.read_bytes())
            marker = dict(config.get("metadata") or {})
        except (OSError, ValueError, AttributeError):
            continue
        check_marker(marker)


def _prepare(options: StartOptions, report: Report) -> tuple[Roster, SavedState]:
    """Choose the ports and the number of processes, and save them."""
    data, settings = options.data, options.settings
    saved = SavedState.load(data)
    requested_nats = _requested_port(options.nats_port, settings, "nats_port")
    requested_http = _requested_port(options.port, settings, "port")
    nats = ports.choose(
        ports.PortRequest("the NATS server", "--nats-port", 4222, requested_nats, saved.nats_port)
    )
    http = ports.choose(
        ports.PortRequest("the gateway", "--port", 8420, requested_http, saved.port),
        settings.host,
        {nats.port},
    )
    for chosen in (nats, http):
        if chosen.note:
            report({"event": "note", "text": chosen.note})
    for service, count in options.counts.items():
        check_count(service, count)
        saved.counts[service] = count
    saved.nats_port, saved.port = nats.port, http.port
    saved.save(data)
    token = settings.token.get_secret_value() if settings.token is not None else None
    roster = Roster(
        data=data,
        credentials=Credentials.load_or_make(data, token=token),
        nats_port=nats.port,
        port=http.port,
        host=settings.host or LOOPBACK,
        programs=options.programs,
        inherited={**os.environ, **options.kept.environment},
        publishers_max=settings.publisher_connections_max,
    )
    return roster, saved


def _requested_port(flag: int | None, settings: Settings, name: str) -> int | None:
    """The port of the flag or the setting; None if neither sets one."""
    if flag is not None:
        return flag
    return int(getattr(settings, name)) if name in settings.model_fields_set else None
