"""Which ports the mesh listens on: those asked for, else those of last time, else the usual ones, else any free ones."""

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
class Wish:
    """A port to choose. ``asked``: somebody asked for exactly this one (0: for any); else ``usual`` is merely preferred."""

    what: str
    flag: str
    usual: int
    asked: int | None = None
    remembered: int | None = None


@dataclass(frozen=True, slots=True)
class Chosen:
    """A port that was free a moment ago; ``note`` says when it is not the one that people would expect."""

    port: int
    note: str = ""


def choose(wish: Wish, host: str = LOOPBACK, besides: AbstractSet[int] = frozenset()) -> Chosen:
    """Choose a port, none of ``besides``.

    Raises:
        Refused: exactly one port was asked for, and it is taken.
        BadSettings: ``host`` is no address of this machine.
    """
    _check_host(host)
    if wish.asked:
        if not _usable(wish.asked, host, besides):
            raise Refused(
                f"port {wish.asked} for {wish.what} is taken",
                hint=f"choose another with {wish.flag}, or 0 for any free one",
            )
        return Chosen(wish.asked)
    if wish.asked == 0:
        remembered = wish.remembered
        return Chosen(
            remembered if remembered and _usable(remembered, host, besides) else any_free(host, besides)
        )
    preferred = wish.remembered or wish.usual
    if _usable(preferred, host, besides):
        return Chosen(preferred)
    port = any_free(host, besides)
    return Chosen(
        port, f"port {preferred} is taken, so {wish.what} listens on {port} (choose one with {wish.flag})"
    )


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Whether nothing listens there now."""
    with contextlib.closing(socket.socket()) as probe:
        # As servers do: a connection that is still closing does not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def any_free(host: str = LOOPBACK, besides: AbstractSet[int] = frozenset()) -> int:
    """A port that nothing listens on, none of ``besides``.

    From below those that the system gives to connections (32768 and above on Linux): until its server listens, no
    connection can come upon it, and two that choose at once hardly choose the same.
    """
    for _ in range(TRIES_MAX):
        port = random.randrange(*FREE_PORTS)  # noqa: S311 - a choice, not a secret
        if _usable(port, host, besides):
            return port
    with contextlib.closing(socket.socket()) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _usable(port: int, host: str, besides: AbstractSet[int]) -> bool:
    return port not in besides and is_free(port, host)


def _check_host(host: str) -> None:
    try:
        with contextlib.closing(socket.socket()) as probe:
            probe.bind((host, 0))
    except OSError as error:
        raise BadSettings(
            f"nothing can listen on {host}: {error.strerror}",
            hint="set ANCHORWATCH_HOST to an address of this machine, such as 127.0.0.1",
        ) from None
