"""One worker of the floor: ``python -m tests.bench.floor_stage NAME URL SINK RECEIVER STEP…``.

It takes messages and publishes the next one, and that is all: no state, no fence, no check. A step is ``from:to``; before
``done`` it has the sink do its effect, and to ``notify`` it tells the receiver, as the mesh's executor and notifier do.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from functools import partial

import nats
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from tests.bench.processes import announce_ready

BATCH = 64
IN_HAND_MAX = 256


class Stage:
    """Where a worker's messages go."""

    def __init__(self, js: JetStreamContext, sink: str, receiver: str) -> None:
        self._js = js
        self._paths = sink, receiver
        self._turn = asyncio.Lock()
        self._answers: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue()
        self._sink: asyncio.StreamWriter | None = None
        self._receiver: asyncio.StreamWriter | None = None

    async def connect(self) -> None:
        sink, receiver = self._paths
        reader, self._sink = await asyncio.open_unix_connection(sink)
        _, self._receiver = await asyncio.open_unix_connection(receiver)
        self._reading = asyncio.create_task(self._read(reader))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while await reader.readline():
            (await self._answers.get()).set_result(None)

    async def take(self, message: Msg, step: str) -> None:
        turn = message.subject.split(".", 2)[2]
        name = turn.replace(".", "/")
        if step == "notify":
            assert self._receiver is not None
            self._receiver.write(f"{name}\n".encode())
        else:
            if step == "done":
                await self._effect(name)
            await self._js.publish(f"floor.{step}.{turn}", message.data if step == "in" else name.encode())
        await message.ack()

    async def _effect(self, name: str) -> None:
        assert self._sink is not None
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answers.put_nowait(answered)
        self._sink.write(f"{name} {name}\n".encode())
        await answered


async def consume(js: JetStreamContext, from_: str, take: Callable[[Msg], Awaitable[None]]) -> None:
    subscription = await js.pull_subscribe(f"floor.{from_}.>", f"floor-{from_}")
    slots = asyncio.Semaphore(IN_HAND_MAX)

    async def run(message: Msg) -> None:
        async with slots:
            await take(message)

    while True:
        try:
            messages = await subscription.fetch(BATCH, timeout=60)
        except TimeoutError:
            continue
        await asyncio.gather(*map(run, messages))


async def main(name: str, url: str, sink: str, receiver: str, steps: list[str]) -> None:
    client = await nats.connect(url, name=name)
    js = client.jetstream()
    stage = Stage(js, sink, receiver)
    await stage.connect()
    async with asyncio.TaskGroup() as group:
        for step in steps:
            from_, _, to = step.partition(":")
            group.create_task(consume(js, from_, partial(stage.take, step=to)))
        announce_ready()


if __name__ == "__main__":
    name, url, sink, receiver, *steps = sys.argv[1:]
    asyncio.run(main(name, url, sink, receiver, steps))
