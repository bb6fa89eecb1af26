"""The processes of a mesh, and the command and environment of each."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from anchorwatch.core.errors import BadInput, NotFound, Refused
from anchorwatch.mesh import nats_server
from anchorwatch.mesh.credentials import SERVICES, Credentials, pack_services
from anchorwatch.mesh.files import DataDir
from anchorwatch.mesh.process import Command
from anchorwatch.settings import PREFIX, SECRET_FILE_SUFFIX, secret_names

NATS = "nats"
COUNT_MAX = 32
SCALABLE = ("observer", "planner", "executor", "notifier")
SINGLE_REASONS = {
    "gateway": "it owns the port",
    "memory": "it owns the files of its projections",
    NATS: "it owns the store; for more, run a cluster (compose.cluster.yaml)",
}


def check_count(service: str, count: int) -> None:
    """Check that ``count`` processes of ``service`` may run.

    Raises:
        NotFound: the service does not exist.
        Refused: exactly one process of it may run.
        BadInput: the number is out of bounds.
    """
    reason = SINGLE_REASONS.get(service) or ("it belongs to a pack" if service in pack_services() else "")
    if reason:
        if count != 1:
            raise Refused(
                f"exactly one {service} runs: {reason}",
                hint=f"scale one of {', '.join(SCALABLE)}",
            )
    elif service not in SCALABLE:
        raise NotFound(f"unknown service {service!r}", hint=f"scale one of {', '.join(SCALABLE)}")
    if not 0 <= count <= COUNT_MAX:
        raise BadInput(f"{count} is not a valid number of processes", hint=f"choose 0 to {COUNT_MAX}")


@dataclass(frozen=True)
class Roster:
    """The processes of one mesh.

    ``programs`` replaces the program of a service, by its name. ``inherited`` replaces the environment of this process, which
    the services inherit by default.
    """

    data: DataDir
    credentials: Credentials
    nats_port: int
    port: int
    host: str
    programs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    inherited: Mapping[str, str] | None = None
    publishers_max: int = nats_server.PUBLISHERS_MAX

    @property
    def nats_url(self) -> str:
        return f"nats://{nats_server.LOOPBACK}:{self.nats_port}"

    @property
    def api_url(self) -> str:
        """The gateway's URL on this machine."""
        host = nats_server.LOOPBACK if self.host in ("", "0.0.0.0", "::") else self.host  # noqa: S104 - compared, not bound
        return f"http://{host}:{self.port}"

    @property
    def nats_config(self) -> str:
        """The text of the NATS server's configuration file."""
        return nats_server.config_text(
            self.credentials,
            listen=f"{nats_server.LOOPBACK}:{self.nats_port}",
            publishers_max=self.publishers_max,
        )

    def nats(self) -> Command:
        """The command of the NATS server.

        Only the command line names the store, so a server that a person starts with ``nats.conf`` does not use it. The path
        is relative to the working directory, so the server does not write into a directory that replaces this one.
        """
        data = self.data
        return Command(
            arguments=(
                nats_server.find_binary(),
                *("--config", str(data.nats_config)),
                *("--store_dir", data.nats_store.name),
            ),
            environment={"PATH": os.environ.get("PATH", os.defpath)},
            log=data.log(NATS),
            cwd=data.root,
        )

    def service(self, service: str, instance: str) -> Command:
        """The command of one instance of a service."""
        # -P: a file in the working directory must not shadow a module.
        program = self.programs.get(service) or (
            sys.executable,
            "-P",
            "-m",
            "anchorwatch.cli.main",
            "serve",
            service,
        )
        return Command(
            arguments=program, environment=self._environment(service, instance), log=self.data.log(instance)
        )

    def _environment(self, service: str, instance: str) -> dict[str, str]:
        """The inherited environment with the settings of this service, without the secrets that it does not need."""
        environment = dict(os.environ if self.inherited is None else self.inherited)
        for name in secret_names():
            if name.startswith("model") and service == "planner":
                continue
            environment.pop(f"{PREFIX}{name.upper()}", None)
            environment.pop(f"{PREFIX}{name.upper()}{SECRET_FILE_SUFFIX}", None)
        own = {
            "data_dir": str(self.data.root),
            "nats_url": self.nats_url,
            "nats_user": service,
            "nats_password": self.credentials.passwords[service],
            "instance": instance,
            "host": self.host,
            "port": str(self.port),
        }
        if service == "gateway":
            own["token"] = self.credentials.token
        return environment | {f"{PREFIX}{name.upper()}": value for name, value in own.items()}


def default_services(*, bare: bool) -> tuple[str, ...]:
    """The services of a mesh, including those of packs unless it is ``bare``."""
    return SERVICES if bare else (*SERVICES, *pack_services())
