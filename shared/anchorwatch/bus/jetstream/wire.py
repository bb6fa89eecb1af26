"""The NATS protocol where every message passes: read without a task and regular expressions, headers written once.

Messages are read here; whatever else a server says is passed on to nats-py, byte for byte, in its order.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from nats import errors

_NEWLINE = b"\r\n"
_STATUS_AT = len(b"NATS/1.0 ")
_STATUS_CHARS = 3
_MESSAGE, _WITH_HEADERS = b"MSG", b"HMSG"
# Of a message without an address for answers.
_ARGUMENTS = {_MESSAGE: 4, _WITH_HEADERS: 5}
_BLANK = re.compile(r"[ \t\r\n]")
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_NO_NEWLINES = str.maketrans({"\r": " ", "\n": " "})

Deliver = Callable[[int, bytes, bytes, bytes, bytes], bool]
"""Takes (subscription, subject, reply, data, headers). False: it is not here that its messages are wanted."""


class Tap(asyncio.Protocol):
    """Stands between a socket and nats-py's reader, and takes the messages out of what comes.

    nats-py sees the rest a moment later than the messages around it; none of it tells anything about them.
    """

    def __init__(self, behind: asyncio.BaseProtocol, deliver: Deliver) -> None:
        self._behind = behind
        self._deliver = deliver
        self._begun: list[bytes] = []
        self._has = self._wanted = 0

    def data_received(self, data: bytes) -> None:
        if self._begun:
            self._begun.append(data)
            self._has += len(data)
            if self._has < self._wanted:
                return
            data = b"".join(self._begun)
            self._begun = []
        at, size = 0, len(data)
        while at < size:
            end = data.find(_NEWLINE, at)
            if end < 0:
                self._wait(data[at:], 0)
                return
            start = end + len(_NEWLINE)
            message = _read_line(data[at:end])
            if message is None:
                self._pass_on(data[at:start])
                at = start
                continue
            sid, subject, reply, head, length = message
            stop = start + length
            following = stop + len(_NEWLINE)
            if following > size:
                self._wait(data[at:], following - at)
                return
            body = start + head
            if not self._deliver(sid, subject, reply, data[body:stop], data[start:body]):
                self._pass_on(data[at:following])
            at = following

    def _wait(self, begun: bytes, wanted: int) -> None:
        """Keep the beginning of something until ``wanted`` bytes of it are there (0: until there are more)."""
        self._begun, self._has, self._wanted = [begun], len(begun), wanted

    def _pass_on(self, data: bytes) -> None:
        if isinstance(self._behind, asyncio.Protocol):
            self._behind.data_received(data)

    # What else a socket tells is none of this one's business.

    def connection_lost(self, exc: Exception | None) -> None:
        self._behind.connection_lost(exc)

    def eof_received(self) -> bool | None:
        return self._behind.eof_received() if isinstance(self._behind, asyncio.Protocol) else None

    def pause_writing(self) -> None:
        self._behind.pause_writing()

    def resume_writing(self) -> None:
        self._behind.resume_writing()


def _read_line(line: bytes) -> tuple[int, bytes, bytes, int, int] | None:
    """Of a message: subscription, subject, where answers go, bytes of headers, bytes in all. None: it is another line."""
    arguments = line.split()
    operation = arguments[0] if arguments else b""
    if operation == _WITH_HEADERS:
        sizes = arguments[-2:]
    elif operation == _MESSAGE:
        sizes = [b"0", arguments[-1]]
    else:
        return None
    replied = len(arguments) - _ARGUMENTS[operation]
    if replied not in (0, 1) or not (arguments[2] + sizes[0] + sizes[1]).isdigit():
        # nats-py will say so.
        return None
    return int(arguments[2]), arguments[1], arguments[3] if replied else b"", int(sizes[0]), int(sizes[1])


def text(raw: bytes) -> str:
    """What a publisher wrote, whatever it is: the server does not check it, and nobody's message may end the reading of all."""
    return raw.decode("utf-8", "replace")


def read_headers(raw: bytes) -> dict[str, str] | None:
    """The headers of a message; of one that is a status, that too. None: there are none."""
    if not raw:
        return None
    first, _, lines = raw.partition(_NEWLINE)
    headers = read_lines(lines)
    if len(first) > _STATUS_AT:
        status = first[_STATUS_AT : _STATUS_AT + _STATUS_CHARS].strip()
        if status.isdigit():
            headers["Status"] = status.decode()
        if words := first[_STATUS_AT + _STATUS_CHARS + 1 :]:
            headers["Description"] = text(words)
    return headers


def read_lines(raw: bytes) -> dict[str, str]:
    """As nats-py reads them, which looks at every character of every name by itself."""
    headers = {}
    for line in raw.split(_NEWLINE):
        name, colon, value = line.partition(b":")
        if colon and name.isascii():
            key = name.strip().decode()
            # None with white space within.
            if "".join(key.split()) == key:
                headers[key] = text(value.strip())
    return headers


def write_headers(headers: Mapping[str, str]) -> bytes:
    """As nats-py writes them: values are trimmed, and none reaches beyond its line.

    Raises:
        BadHeaderError: a name is none.
    """
    lines = ["NATS/1.0\r\n"]
    for name, value in headers.items():
        if key := _name(name):
            lines.append(f"{key}: {value.strip().translate(_NO_NEWLINES)}\r\n")
    lines.append("\r\n")
    return "".join(lines).encode()


def write_message(subject: str, reply: str, headers: bytes, payload: bytes) -> bytes:
    """The command that publishes a message.

    Raises:
        BadSubjectError: a subject is empty, or has white space in it, and could pass for a command.
    """
    if not subject or _BLANK.search(subject) or _BLANK.search(reply):
        raise errors.BadSubjectError
    size = len(headers)
    if not headers:
        return f"PUB {subject} {reply} {len(payload)}\r\n".encode() + payload + _NEWLINE
    line = f"HPUB {subject} {reply} {size} {size + len(payload)}\r\n".encode()
    return b"".join((line, headers, payload, _NEWLINE))


@lru_cache(maxsize=256)
def _name(name: str) -> str:
    """The name as it is sent; empty: it is skipped."""
    key = name.strip()
    if key and not _NAME.fullmatch(key):
        raise errors.BadHeaderError(key)
    return key
