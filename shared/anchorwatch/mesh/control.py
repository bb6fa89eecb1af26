"""The control socket of a supervisor: a Unix socket for its owner only, with one JSON object a line in each direction."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import socket
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from anchorwatch.core.errors import AnchorWatchError, BadInput, Conflict, NotFound, Refused, Unavailable
from anchorwatch.mesh.files import PRIVATE_DIR, PRIVATE_FILE, DataDir
from anchorwatch.mesh.lock import lock_holder

# The kernel's limit is 108 bytes, on some systems 104.
SOCKET_PATH_BYTES_MAX = 99
SHORT_TMP = "/tmp"  # noqa: S108 - the owner of the directory is checked before use
REQUEST_BYTES_MAX = 64 * 1024
ANSWER_S_MAX = 30.0

Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
_ERRORS: dict[str, type[AnchorWatchError]] = {
    kind.code: kind for kind in (BadInput, NotFound, Refused, Conflict)
}


def socket_path(data: DataDir) -> Path:
    """The path of the socket: in the data directory, or in a temporary directory if that path is too long.

    Raises:
        Refused: every such path is too long.
    """
    digest = hashlib.sha256(os.fsencode(data.root)).hexdigest()[:12]
    beside = f"anchorwatch-{os.getuid()}-{digest}"
    # The path of the temporary directory may itself be too long.
    temporary = (Path(where) / beside / "control.sock" for where in (tempfile.gettempdir(), SHORT_TMP))
    for path in (data.control, *temporary):
        if len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX:
            return path
    raise Refused(f"the path {data.root} is too long for a Unix socket", hint="choose a shorter --data-dir")


class ControlServer:
    """Answers control requests with ``handler``; an error is sent with its code."""

    def __init__(self, path: Path, handler: Handler) -> None:
        self._path = path
        self._handler = handler
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._path.parent.mkdir(mode=PRIVATE_DIR, exist_ok=True)
        if self._path.parent.stat().st_uid != os.getuid():
            # Any user may create it in a temporary directory.
            raise Refused(f"{self._path.parent} belongs to another user", hint="choose a shorter --data-dir")
        self._path.unlink(missing_ok=True)
        # The mask makes the socket private from its creation.
        before = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(self._serve, self._path, limit=REQUEST_BYTES_MAX)
        finally:
            os.umask(before)
        self._path.chmod(PRIVATE_FILE)

    async def close(self, data: DataDir) -> None:
        if self._server is not None:
            self._server.close()
        self._path.unlink(missing_ok=True)
        if self._path.parent != data.root:
            with contextlib.suppress(OSError):
                self._path.parent.rmdir()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError, ValueError, asyncio.LimitOverrunError):
                while line := await reader.readline():
                    writer.write(json.dumps(await self._answer(line)).encode() + b"\n")
                    await writer.drain()
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            try:
                request = json.loads(line)
            except ValueError:
                raise BadInput("a control request must be one JSON object on one line") from None
            if not isinstance(request, dict):
                raise BadInput("a control request must be one JSON object on one line")
            return {"ok": True, **await self._handler(request)}
        except AnchorWatchError as error:
            return {"ok": False, "code": error.code, "message": error.message, "hint": error.hint}


def ask(data: DataDir, request: dict[str, Any], timeout_s: float = ANSWER_S_MAX) -> dict[str, Any]:
    """Send a request to the supervisor of a data directory, and wait for the answer.

    Raises:
        Unavailable: no mesh runs on this data, or the supervisor does not answer.
        AnchorWatchError: the supervisor's error, by its code.
    """
    holder = lock_holder(data)
    if holder is None:
        raise Unavailable(
            f"no mesh is running on {data.root}",
            hint="start it with `anchorwatch up`, or name it with --data-dir",
        )
    try:
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as link:
            link.settimeout(timeout_s)
            link.connect(holder.control)
            link.sendall(json.dumps(request).encode() + b"\n")
            with link.makefile("rb") as file:
                line = file.readline()
        answer: dict[str, Any] = json.loads(line)
    except (OSError, ValueError):
        raise Unavailable(
            f"the supervisor (pid {holder.pid}) does not answer", hint="it may be starting or stopping"
        ) from None
    if not answer.pop("ok", False):
        kind = _ERRORS.get(answer.get("code", ""), Refused)
        raise kind(answer.get("message", "refused"), hint=answer.get("hint", ""))
    return answer
