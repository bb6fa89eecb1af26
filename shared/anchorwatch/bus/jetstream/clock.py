"""The server's clock, estimated at the client."""

from __future__ import annotations

import asyncio
import json
import time

from anchorwatch.bus.jetstream.api import is_unanswered, unix_ms
from anchorwatch.bus.jetstream.link import Link
from anchorwatch.core.errors import Denied

REFRESH_S = 30.0
TIMEOUT_S = 2.0


class ServerClock:
    """Reads the server's clock every `REFRESH_S`, and the monotonic clock in between."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._read_at_s = float("-inf")
        self._offset_ms = 0.0

    async def now_ms(self) -> int:
        """Unix milliseconds; the error is at most half a round trip. A user without the permission gets this machine's time."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._read_at_s > REFRESH_S:
            before_s = loop.time()
            served_ms = await self._server_ms()
            after_s = loop.time()
            self._offset_ms = served_ms - (before_s + after_s) / 2 * 1000
            self._read_at_s = after_s
        return round(loop.time() * 1000 + self._offset_ms)

    async def _server_ms(self) -> float:
        try:
            reply = await self._link.call("$SYS.REQ.USER.INFO", b"", TIMEOUT_S)
        except Denied:
            return time.time() * 1000
        if is_unanswered(reply):
            return time.time() * 1000
        return float(unix_ms(json.loads(reply.data)["server"]["time"]))
