"""Talking to a running supervisor: a Unix socket that only its owner may use; a JSON object a line, each way."""

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
from anchorwatch.mesh.lock import held_by

# The kernel's limit is 108 bytes, on some systems 104.
SOCKET_PATH_BYTES_MAX = 99
SHORT_TMP = "/tmp"  # noqa: S108 - the owner of what is made there is checked before it is used
REQUEST_BYTES_MAX = 64 * 1024
ANSWER_S_MAX = 30.0

Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
_ERRORS: dict[str, type[AnchorWatchError]] = {
    kind.code: kind for kind in (BadInput, NotFound, Refused, Conflict)
}


def socket_path(data: DataDir) -> Path:
    """Where the socket goes: in the data directory, or, where that path is too long for a socket, among temporary files.

    Raises:
        Refused: every such path is too long.
    """
    digest = hashlib.sha256(os.fsencode(data.root)).hexdigest()[:12]
    beside = f"anchorwatch-{os.getuid()}-{digest}"
    # The directory for temporary files may itself lie deep.
    temporary = (Path(where) / beside / "control.sock" for where in (tempfile.gettempdir(), SHORT_TMP))
    for path in (data.control, *temporary):
        if len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX:
            return path
    raise Refused(f"{data.root} is too long for a socket's path", hint="choose a shorter --data-dir")


class ControlServer:
    """Answers control requests with ``handler``; its errors go back by their code."""

    def __init__(self, path: Path, handler: Handler) -> None:
        self._path = path
        self._handler = handler
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._path.parent.mkdir(mode=PRIVATE_DIR, exist_ok=True)
        if self._path.parent.stat().st_uid != os.getuid():
            # Among temporary files, where anyone may have made it.
            raise Refused(f"{self._path.parent} belongs to somebody else", hint="choose a shorter --data-dir")
        self._path.unlink(missing_ok=True)
        # The mask makes it private from the first moment.
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
                raise BadInput("a control request is a JSON object in one line") from None
            if not isinstance(request, dict):
                raise BadInput("a control request is a JSON object in one line")
            return {"ok": True, **await self._handler(request)}
        except AnchorWatchError as error:
            return {"ok": False, "code": error.code, "message": error.message, "hint": error.hint}


def ask(data: DataDir, request: dict[str, Any], timeout_s: float = ANSWER_S_MAX) -> dict[str, Any]:
    """Ask the supervisor of a data directory, and wait for its answer.

    Raises:
        Unavailable: no mesh runs on this data, or it does not answer.
        AnchorWatchError: what the supervisor said, by its kind.
    """
    holder = held_by(data)
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
