"""The channels. A channel sends a notice and reports the result; a receiver that is away is a result, not a crash."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from collections import OrderedDict
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import BinaryIO, Protocol

import structlog
from anchorwatch.core.times import iso
from anchorwatch.core.tools import EffectClass
from standardwebhooks import Webhook

from anchorwatch_notifier.notices import Notice
from anchorwatch_notifier.posting import NotReached, Poster
from anchorwatch_notifier.routes import Route

OTHERS_KEPT_MAX = 65_536
WEBHOOK_TIMEOUT_S = 10.0
RETRY_AFTER_S_MAX = 24 * 3600.0
LOCK_S_MAX = 5.0
LOCK_RETRY_S = 0.01
_TOLD_TO_WAIT = frozenset({429, 503})


class NotSent(Exception):
    """The notice was not sent, or may not have been. ``wait_s``: how long the receiver asks us to wait."""

    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


class Channel(Protocol):
    """A way to one receiver.

    ``effect_class`` says what may be done about a delivery that was begun and not ended: idempotent (the receiver takes one id
    once: send again), reconcilable (ask whether it arrived) or irreversible (neither). ``rejects_used_id``: a second delivery
    of one id has no effect, whichever process sends it.
    """

    effect_class: EffectClass
    rejects_used_id: bool

    async def send(self, delivery_id: str, notice: Notice) -> None:
        """Send it.

        Raises:
            NotSent.
        """
        ...

    async def arrived(self, delivery_id: str) -> bool | None:
        """Whether the delivery has arrived; None: the receiver cannot tell."""
        ...

    async def close(self) -> None: ...


class LogChannel:
    """A line in the service's own log."""

    effect_class: EffectClass = EffectClass.IRREVERSIBLE
    rejects_used_id: bool = False

    def __init__(self, log: structlog.stdlib.BoundLogger) -> None:
        self._log = log

    async def send(self, delivery_id: str, notice: Notice) -> None:
        self._log.warning("notification", id=delivery_id, **notice.content())

    async def arrived(self, delivery_id: str) -> bool | None:  # noqa: ARG002 - a log is a stream, which cannot be read back
        return None

    async def close(self) -> None:
        pass


class FileChannel:
    """A line of JSON at the end of a file; each carries its delivery's id, so the file shows whether it arrived.

    A process that was stopped between its claim and its line may resume after another process has written the line. So a
    process reads what others have written before it writes, both under the file's lock. It holds the lock without a pause
    between (no thread, no await), so that a process is hardly ever stopped with it; where one was, the lock is waited for
    within a limit, and the delivery is retried.
    """

    effect_class: EffectClass = EffectClass.RECONCILABLE
    rejects_used_id: bool = True

    def __init__(self, path: Path) -> None:
        self._path = path
        # `arrived` reads the lines from before this process, where a claim was left open.
        self._read = path.stat().st_size if path.exists() else 0
        self._of_others: OrderedDict[str, None] = OrderedDict()

    async def send(self, delivery_id: str, notice: Notice) -> None:
        line = json.dumps({"id": delivery_id, **notice.content()}, ensure_ascii=False).encode() + b"\n"
        clock = asyncio.get_running_loop().time
        deadline = clock() + LOCK_S_MAX
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab+") as file:
                while not self._append(file, delivery_id, line):
                    if clock() > deadline:
                        raise NotSent(
                            f"another process has held the lock of {self._path} for {LOCK_S_MAX:g} s"
                        )
                    await asyncio.sleep(LOCK_RETRY_S)
                await asyncio.to_thread(os.fsync, file.fileno())
        except OSError as error:
            raise NotSent(f"cannot write: {error.strerror}") from None

    def _append(self, file: BinaryIO, delivery_id: str, line: bytes) -> bool:
        """Whether the file has the line now; False: another process holds its lock."""
        try:
            # Without the lock, a line that another notifier is writing would look like one that a crash cut short.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        try:
            size = file.seek(0, os.SEEK_END)
            self._read_others(size)
            if delivery_id in self._of_others:
                return True
            if size and not self._ends_in_line(size):
                # A line that a crash cut short stays on its own line.
                line = b"\n" + line
            file.write(line)
            file.flush()
            self._read = size + len(line)
        finally:
            # Other notifiers need not wait for the disk.
            fcntl.flock(file, fcntl.LOCK_UN)
        return True

    def _read_others(self, size: int) -> None:
        """Note the ids that others wrote since the last read. A file that became shorter is a new file."""
        start = self._read if self._read <= size else 0
        if start < size:
            with self._path.open("rb") as file:
                file.seek(start)
                for line in file:
                    self._of_others[_id_of(line)] = None
        while len(self._of_others) > OTHERS_KEPT_MAX:
            self._of_others.popitem(last=False)
        self._read = size

    def _ends_in_line(self, size: int) -> bool:
        with self._path.open("rb") as file:
            file.seek(size - 1)
            return file.read(1) == b"\n"

    async def arrived(self, delivery_id: str) -> bool | None:
        return await asyncio.to_thread(self._holds, delivery_id)

    def _holds(self, delivery_id: str) -> bool | None:
        try:
            with self._path.open("rb") as file:
                return any(_is_line_of(line, delivery_id) for line in file)
        except FileNotFoundError:
            return False
        except OSError:
            return None

    async def close(self) -> None:
        pass


def _is_line_of(line: bytes, delivery_id: str) -> bool:
    return delivery_id.encode() in line and _id_of(line) == delivery_id


def _id_of(line: bytes) -> str:
    """The delivery of a line; empty of one that was cut short."""
    try:
        return str(json.loads(line)["id"])
    except (ValueError, KeyError, TypeError):
        return ""


class WebhookChannel:
    """A POST by the Standard Webhooks specification: signed, and with the same ``webhook-id`` each time it is sent."""

    effect_class: EffectClass = EffectClass.IDEMPOTENT
    rejects_used_id: bool = True

    def __init__(self, url: str, secret: str) -> None:
        self._signer = Webhook(secret)
        self._poster = Poster(url)

    async def send(self, delivery_id: str, notice: Notice) -> None:
        content = {"type": notice.kinds[0], "timestamp": iso(notice.at_ms), "data": notice.content()}
        body = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
        now = datetime.now(UTC)
        headers = {
            "content-type": "application/json",
            "webhook-id": delivery_id,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": self._signer.sign(delivery_id, now, body),
        }
        try:
            async with asyncio.timeout(WEBHOOK_TIMEOUT_S):
                reply = await self._poster.post(headers, body.encode())
        except TimeoutError:
            raise NotSent(f"no answer within {WEBHOOK_TIMEOUT_S:g} s") from None
        except NotReached as error:
            raise NotSent(f"not reached: {error}") from None
        if not 200 <= reply.status < 300:  # noqa: PLR2004 - success, as HTTP has it
            wait_s = retry_after_s(reply.headers.get("retry-after"), now)
            raise NotSent(
                f"the receiver answered {reply.status}", wait_s if reply.status in _TOLD_TO_WAIT else None
            )

    async def arrived(self, delivery_id: str) -> bool | None:  # noqa: ARG002 - it is sent again, and the receiver deduplicates
        return None

    async def close(self) -> None:
        await self._poster.close()


def retry_after_s(value: str | None, now: datetime) -> float | None:
    """The header ``Retry-After``: seconds, or an HTTP date; None where it says nothing usable."""
    if not value:
        return None
    if value.strip().isdecimal():
        return min(float(value), RETRY_AFTER_S_MAX)
    try:
        until = parsedate_to_datetime(value)
    except ValueError:
        return None
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return min(max((until - now).total_seconds(), 0.0), RETRY_AFTER_S_MAX)


def make_channel(route: Route, log: structlog.stdlib.BoundLogger) -> Channel:
    """The channel that a route names."""
    match route.kind:
        case "log":
            return LogChannel(log)
        case "file":
            assert route.path is not None  # noqa: S101 - checked when the file was read
            return FileChannel(route.path)
        case "webhook":
            assert route.url is not None  # noqa: S101 - the same
            assert route.secret is not None  # noqa: S101 - the same
            return WebhookChannel(route.url, route.secret.get_secret_value())
