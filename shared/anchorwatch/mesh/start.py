"""Starting a mesh on a data directory: the lock, the credentials, the ports, then the supervisor."""

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
from anchorwatch.mesh.lock import Holder, take_lock
from anchorwatch.mesh.nats_server import LOOPBACK
from anchorwatch.mesh.roster import Roster, check_count, default_services
from anchorwatch.mesh.state import Remembered, remove_mesh
from anchorwatch.mesh.supervisor import Supervisor, Tell
from anchorwatch.service import logs
from anchorwatch.service.made import check_marker
from anchorwatch.settings import Settings
from anchorwatch.topology.streams import journal_stream


@dataclass(frozen=True, slots=True)
class StartOptions:
    """What was asked for. A port of None: the usual one; 0: any. ``only``: these services alone; ``programs``: see `Roster`."""

    data: DataDir
    settings: Settings
    nats_port: int | None = None
    port: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    bare: bool = False
    only: tuple[str, ...] = ()
    programs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    version: str = ""


def supervise(options: StartOptions, tell: Tell) -> int:
    """Run a mesh until it is told to stop; returns the exit code.

    Raises:
        Refused: one is running already, or a port is taken. OtherStoreFormat: nothing was written to the store.
        StartFailed: a part did not become ready. Everything has been stopped again.
    """
    data = options.data
    os.umask(PRIVATE_UMASK)
    control_path = socket_path(data)
    # Held until this process ends: where the lock is free, nothing of this mesh runs any more.
    lock = take_lock(data, Holder(os.getpid(), str(control_path)))
    # A crashed supervisor leaves its own.
    remove_mesh(data)
    log = logs.configure(options.settings, service="supervisor")
    try:
        check_store(data)
    except OtherStoreFormat as error:
        log.error("store.refused", code=error.code, reason=error.message)  # noqa: TRY400 - its text says it all
        raise
    roster, remembered = _prepare(options, tell)
    for secret in (*roster.credentials.passwords.values(), roster.credentials.token):
        logs.hide(secret)
    services = options.only or default_services(bare=options.bare)

    async def run() -> int:
        # Made within the loop that it lives in.
        supervisor = Supervisor(roster, services, remembered, tell, log, lock, version=options.version)
        return await supervisor.run(ControlServer(control_path, supervisor.answer))

    return asyncio.run(run())


def check_store(data: DataDir) -> None:
    """Check the format of the store before its server starts. A file that cannot be read is left to the server and the services.

    Raises:
        OtherStoreFormat: the journal in it was made with another format.
    """
    for path in data.nats_store.glob(f"jetstream/*/streams/{journal_stream()}/meta.inf"):
        try:
            config = json.loads(path.read_bytes())
            found = dict(config.get("metadata") or {})
        except (OSError, ValueError, AttributeError):
            continue
        check_marker(found)


def _prepare(options: StartOptions, tell: Tell) -> tuple[Roster, Remembered]:
    """Choose the ports and numbers, and remember them."""
    data, settings = options.data, options.settings
    remembered = Remembered.load(data)
    asked_nats = _asked(options.nats_port, settings, "nats_port")
    asked_http = _asked(options.port, settings, "port")
    nats = ports.choose(ports.Wish("the NATS server", "--nats-port", 4222, asked_nats, remembered.nats_port))
    http = ports.choose(
        ports.Wish("the gateway", "--port", 8420, asked_http, remembered.port), settings.host, {nats.port}
    )
    for chosen in (nats, http):
        if chosen.note:
            tell({"event": "note", "text": chosen.note})
    for service, count in options.counts.items():
        check_count(service, count)
        remembered.counts[service] = count
    remembered.nats_port, remembered.port = nats.port, http.port
    remembered.save(data)
    given = settings.token.get_secret_value() if settings.token is not None else None
    roster = Roster(
        data=data,
        credentials=Credentials.load_or_make(data, token=given),
        nats_port=nats.port,
        port=http.port,
        host=settings.host or LOOPBACK,
        programs=options.programs,
    )
    return roster, remembered


def _asked(flag: int | None, settings: Settings, name: str) -> int | None:
    """The port that somebody asked for, by flag or by setting; None when it is only the default."""
    if flag is not None:
        return flag
    return int(getattr(settings, name)) if name in settings.model_fields_set else None
