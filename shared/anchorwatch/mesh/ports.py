"""The ports of a mesh: the requested port, else the previous one, else the default, else any free port."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from anchorwatch.core.errors import BadSettings, Refused
from anchorwatch.mesh.nats_server import LOOPBACK

FREE_PORTS = (16_000, 32_000)
TRIES_MAX = 100


@dataclass(frozen=True, slots=True)
class PortRequest:
    """A port to choose. ``requested``: this port and no other; 0 means any. ``previous``: the port of the last start."""

    what: str
    flag: str
    default: int
    requested: int | None = None
    previous: int | None = None


@dataclass(frozen=True, slots=True)
class PortChoice:
    """A port that was free a moment ago; ``note`` explains a port that is not the expected one."""

    port: int
    note: str = ""


def choose(
    request: PortRequest, host: str = LOOPBACK, excluded: AbstractSet[int] = frozenset()
) -> PortChoice:
    """Choose a port that is not in ``excluded``.

    Raises:
        Refused: the requested port is taken.
        BadSettings: ``host`` is not an address of this machine.
    """
    _check_host(host)
    if request.requested:
        if not _usable(request.requested, host, excluded):
            raise Refused(
                f"port {request.requested} for {request.what} is taken",
                hint=f"choose another with {request.flag}, or 0 for any free one",
            )
        return PortChoice(request.requested)
    if request.requested == 0:
        previous = request.previous
        return PortChoice(
            previous if previous and _usable(previous, host, excluded) else any_free(host, excluded)
        )
    preferred = request.previous or request.default
    if _usable(preferred, host, excluded):
        return PortChoice(preferred)
    port = any_free(host, excluded)
    return PortChoice(
        port,
        f"port {preferred} is taken, so {request.what} listens on {port} (choose one with {request.flag})",
    )


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Whether no process listens there now."""
    with contextlib.closing(socket.socket()) as probe:
        # As servers do: a connection in TIME_WAIT does not make the port taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def any_free(host: str = LOOPBACK, excluded: AbstractSet[int] = frozenset()) -> int:
    """A free port that is not in ``excluded``.

    It is below the ephemeral ports (32768 and above on Linux), so that no outgoing connection takes it before its server
    listens. Two processes that choose at once are unlikely to choose the same.
    """
    for _ in range(TRIES_MAX):
        port = random.randrange(*FREE_PORTS)  # noqa: S311 - a choice, not a secret
        if _usable(port, host, excluded):
            return port
    with contextlib.closing(socket.socket()) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _usable(port: int, host: str, excluded: AbstractSet[int]) -> bool:
    return port not in excluded and is_free(port, host)


def _check_host(host: str) -> None:
    try:
        with contextlib.closing(socket.socket()) as probe:
            probe.bind((host, 0))
    except OSError as error:
        raise BadSettings(
            f"nothing can listen on {host}: {error.strerror}",
            hint="set ANCHORWATCH_HOST to an address of this machine, such as 127.0.0.1",
        ) from None
