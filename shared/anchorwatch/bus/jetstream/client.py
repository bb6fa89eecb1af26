"""nats-py's client, quicker where every message passes.

What is overridden has no public name. Were nats-py's methods called otherwise one day, those here would merely be idle.
"""

from __future__ import annotations

from collections.abc import Callable

from nats.aio import client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription


class Client(client.Client):
    """Reads the headers of a message in a third of the time, and hands it over without a queue and a task between."""

    def __init__(self) -> None:
        super().__init__()
        self._receivers: dict[int, Callable[[Msg], None]] = {}

    def hand_over(self, subscription: Subscription, receive: Callable[[Msg], None]) -> None:
        """Call ``receive`` for each message of the subscription as it is read: it must be quick."""
        self._receivers[subscription._id] = receive  # noqa: SLF001

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        receive = self._receivers.get(sid)
        if receive is None or sid not in self._subs:
            self._receivers.pop(sid, None)
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        self.stats["in_msgs"] += 1
        self.stats["in_bytes"] += len(data)
        parsed = await self._process_headers(headers)
        try:
            receive(self._build_message(sid, subject, reply, data, parsed))
        except Exception as error:  # noqa: BLE001 - one odd message must not end the reading of all
            await self._error_cb(error)

    @staticmethod
    def _parse_header_lines(raw: bytes) -> dict[str, str]:
        # As nats-py's own, which looks at every character of every name by itself.
        headers = {}
        for line in raw.split(b"\r\n"):
            name, colon, value = line.partition(b":")
            if colon and name.isascii():
                key = name.strip().decode()
                # None with white space within.
                if "".join(key.split()) == key:
                    headers[key] = value.strip().decode("utf-8", "replace")
        return headers
