"""An HTTP/1.1 client that costs next to nothing, so that what is measured is the other side."""

from __future__ import annotations

import asyncio

Link = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class HttpClient:
    """Keeps its connections; as many as there are requests at once."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port
        self._idle: list[Link] = []

    async def get(self, path: str) -> int:
        """The status of the answer."""
        return await self._ask(f"GET {path}", b"")

    async def post(self, path: str, body: bytes) -> int:
        """The status of the answer to a body of JSON."""
        return await self._ask(f"POST {path}", body)

    async def close(self) -> None:
        while self._idle:
            self._idle.pop()[1].close()

    async def _ask(self, what: str, body: bytes) -> int:
        link = self._idle.pop() if self._idle else await asyncio.open_connection(*self._address)
        reader, writer = link
        head = f"{what} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        try:
            writer.write(head.encode() + body)
            answer = (await reader.readuntil(b"\r\n\r\n")).lower()
            await _skip_body(reader, answer)
        except (OSError, EOFError):
            writer.close()
            raise ConnectionError(f"no answer to {what}") from None
        self._idle.append(link)
        return int(answer.split(b" ", 2)[1])


async def _skip_body(reader: asyncio.StreamReader, head: bytes) -> None:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name == b"content-length":
            await reader.readexactly(int(value))
        elif name == b"transfer-encoding":
            while size := int(await reader.readline(), 16):
                await reader.readexactly(size + 2)
            await reader.readline()
