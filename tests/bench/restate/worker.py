"""The turn on Restate: ``python -m tests.bench.restate.worker agent|notifier PORT SOCKET``, by a Python that has its SDK.

``agent`` is a virtual object for each session: an event comes, the stub plans one effect, the sink does it, the outcome and the
state are recorded, and the notifier, a service and a process of its own, is told durably. SOCKET is the sink's or the receiver's.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import hypercorn.asyncio
import hypercorn.config
import restate

from tests.bench.processes import announce_ready

agent = restate.VirtualObject("Agent")
notifier = restate.Service("Notifier")
_sink: dict[str, Any] = {}
_receiver: dict[str, asyncio.StreamWriter] = {}


@agent.handler("turn")
async def turn(context: restate.ObjectContext, event: dict[str, str]) -> None:
    """One durable turn; its state grows by nothing, as an anchor does not."""
    anchor = await context.get("anchor") or {"run": 0}
    run = anchor["run"] + 1
    name = f"{context.key()}/{run}"
    said = await context.run_typed("put", put, name=name)
    context.set("anchor", {"run": run, "outcome": said, "event": event["content"]})
    context.service_send(notify, arg=name)


async def put(name: str) -> str:
    """The effect, under a key that the sink honours."""
    async with _sink["turn"]:
        reader, writer = _sink["link"]
        writer.write(f"{name} {name}\n".encode())
        return str((await reader.readline()).decode().strip())


@notifier.handler("notify")
async def notify(context: restate.Context, name: str) -> None:
    """Tell the receiver."""
    await context.run_typed("tell", tell, name=name)


async def tell(name: str) -> None:
    """One line."""
    _receiver["writer"].write(f"{name}\n".encode())
    await _receiver["writer"].drain()


async def main(role: str, port: str, socket: str) -> None:
    """Serve until killed."""
    reader, writer = await asyncio.open_unix_connection(socket)
    if role == "agent":
        _sink.update(link=(reader, writer), turn=asyncio.Lock())
    else:
        _receiver["writer"] = writer
    config = hypercorn.config.Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.h2_max_concurrent_streams = 10_000
    serving = asyncio.create_task(
        hypercorn.asyncio.serve(restate.app([agent if role == "agent" else notifier]), config)
    )
    announce_ready()
    await serving


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
