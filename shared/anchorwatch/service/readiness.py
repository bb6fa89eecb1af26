"""Notifies the parent that this process is ready.

The supervisor passes the number of an open pipe in ``ANCHORWATCH_READY_FD``; systemd passes a socket in ``NOTIFY_SOCKET``.
"""

from __future__ import annotations

import contextlib
import os
import socket

READY_FD = "ANCHORWATCH_READY_FD"
NOTIFY_SOCKET = "NOTIFY_SOCKET"
READY = b"READY=1\n"


class Readiness:
    """Removes the pipe from the environment, so that no child inherits it."""

    def __init__(self) -> None:
        number = os.environ.pop(READY_FD, "")
        self._fd = int(number) if number.isdecimal() else None
        if self._fd is not None:
            try:
                os.set_inheritable(self._fd, False)  # noqa: FBT003 - the function has no keyword arguments
            except OSError:
                self._fd = None
        self._socket = os.environ.pop(NOTIFY_SOCKET, "")

    def announce(self) -> None:
        """Send the notification. An error is ignored: the receiver may have ended."""
        if self._fd is not None:
            with contextlib.suppress(OSError):
                os.write(self._fd, READY)
            os.close(self._fd)
            self._fd = None
        if self._socket:
            # An address that begins with @ is in Linux's abstract namespace.
            address = "\0" + self._socket[1:] if self._socket.startswith("@") else self._socket
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
                link.sendto(READY, address)
