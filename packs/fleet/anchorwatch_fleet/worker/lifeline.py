"""Ties a worker to its yard: it ends with the yard, even if the yard is killed with signal 9."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading

_PR_SET_PDEATHSIG = 1
YARD_GONE_EXIT = 70


def tie_to(parent_pid: int) -> None:
    """End with the process ``parent_pid``, by two independent mechanisms.

    On Linux the kernel kills this process when the parent ends. A thread also waits on a pipe that only the parent holds open;
    that works on every system, unless this process hangs. If the parent has already ended, this process ends at once.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(YARD_GONE_EXIT)
    threading.Thread(target=_end_with_pipe, daemon=True).start()


def _end_with_pipe() -> None:
    while os.read(0, 1024):
        pass
    os._exit(YARD_GONE_EXIT)
