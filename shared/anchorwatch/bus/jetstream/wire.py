"""The NATS protocol on the path of every message: parsed without a task or regular expressions, written once.

Only messages are parsed here. All other lines of a server go to nats-py, byte for byte and in order.
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
# The number of arguments of a message without a reply subject.
_ARGUMENTS = {_MESSAGE: 4, _WITH_HEADERS: 5}
_BLANK = re.compile(r"[ \t\r\n]")
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_NO_NEWLINES = str.maketrans({"\r": " ", "\n": " "})

Deliver = Callable[[int, bytes, bytes, bytes, bytes], bool]
"""Takes (subscription, subject, reply, data, headers). False: the subscription has no receiver here."""


class Tap(asyncio.Protocol):
    """A protocol in front of nats-py's reader that takes the messages out of the stream of bytes.

    nats-py sees the other lines slightly later than the messages around them; no such line depends on a message.
    """

    def __init__(self, reader: asyncio.BaseProtocol, deliver: Deliver) -> None:
        self._reader = reader
        self._deliver = deliver
        self._partial: list[bytes] = []
        self._partial_bytes = self._wanted_bytes = 0

    def data_received(self, data: bytes) -> None:
        if self._partial:
            self._partial.append(data)
            self._partial_bytes += len(data)
            if self._partial_bytes < self._wanted_bytes:
                return
            data = b"".join(self._partial)
            self._partial = []
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

    def _wait(self, partial: bytes, wanted: int) -> None:
        """Keep an incomplete line or message until it has ``wanted`` bytes (0: until more bytes arrive)."""
        self._partial, self._partial_bytes, self._wanted_bytes = [partial], len(partial), wanted

    def _pass_on(self, data: bytes) -> None:
        if isinstance(self._reader, asyncio.Protocol):
            self._reader.data_received(data)

    # All other events go to nats-py unchanged.

    def connection_lost(self, exc: Exception | None) -> None:
        self._reader.connection_lost(exc)

    def eof_received(self) -> bool | None:
        return self._reader.eof_received() if isinstance(self._reader, asyncio.Protocol) else None

    def pause_writing(self) -> None:
        self._reader.pause_writing()

    def resume_writing(self) -> None:
        self._reader.resume_writing()


def _read_line(line: bytes) -> tuple[int, bytes, bytes, int, int] | None:
    """Subscription, subject, reply subject, size of headers and total size of a message; None for another line."""
    # Not at other white space: the server allows a form feed in a subject, and a publisher chooses subjects.
    arguments = line.split(b" ")
    operation = arguments[0] if arguments else b""
    if operation == _WITH_HEADERS:
        sizes = arguments[-2:]
    elif operation == _MESSAGE:
        sizes = [b"0", arguments[-1]]
    else:
        return None
    replied = len(arguments) - _ARGUMENTS[operation]
    if replied not in (0, 1) or not (arguments[2] + sizes[0] + sizes[1]).isdigit():
        # nats-py reports the error.
        return None
    return int(arguments[2]), arguments[1], arguments[3] if replied else b"", int(sizes[0]), int(sizes[1])


def text(raw: bytes) -> str:
    """A publisher's text. The server does not check it, and one bad message must not end the reading of all."""
    return raw.decode("utf-8", "replace")


def read_headers(raw: bytes) -> dict[str, str] | None:
    """The headers of a message, with the status of a status message; None for no headers."""
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
    """The same result as nats-py's parser, which inspects each character of a name."""
    headers = {}
    for line in raw.split(_NEWLINE):
        name, colon, value = line.partition(b":")
        if colon and name.isascii():
            key = name.strip().decode()
            # nats-py accepts no white space within a name.
            if "".join(key.split()) == key:
                headers[key] = text(value.strip())
    return headers


def write_headers(headers: Mapping[str, str]) -> bytes:
    """The same bytes as nats-py writes: values are trimmed and have no line breaks.

    Raises:
        BadHeaderError: a name is not valid.
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
        BadSubjectError: a subject is empty, or has white space, which could start another command.
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
    """The name in its form on the wire; an empty one is skipped."""
    key = name.strip()
    if key and not _NAME.fullmatch(key):
        raise errors.BadHeaderError(key)
    return key
