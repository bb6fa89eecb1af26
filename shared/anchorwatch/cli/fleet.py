"""The fleet pack's own verbs. They speak to the bus, as the user ``cli``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from anchorwatch.bus.port import Bus
from anchorwatch.cli import views
from anchorwatch.cli.target import bus_settings
from anchorwatch.packs.fleet import cli
from anchorwatch.service.connect import connect

T = TypeVar("T")
CONNECT_S_MAX = 5.0


def status(data_dir: Path | None, *, as_json: bool) -> None:
    """Show the fleet."""
    told = with_bus(data_dir, cli.status)
    views.say(told, cli.render_status(told), as_json=as_json)


def add_jobs(count: int, data_dir: Path | None, *, as_json: bool) -> None:
    """Queue work."""
    ids = with_bus(data_dir, lambda bus: cli.add_jobs(bus, count))
    views.say({"jobs": ids}, cli.render_added(ids), as_json=as_json)


def kill(ident: str, data_dir: Path | None, *, as_json: bool) -> None:
    """Kill an instance."""
    told = with_bus(data_dir, lambda bus: cli.kill(bus, ident))
    views.say(told, cli.render_killed(told), as_json=as_json)


def with_bus(data_dir: Path | None, use: Callable[[Bus], Awaitable[T]]) -> T:
    """What ``use`` makes of a connected bus.

    Raises:
        Unavailable: no mesh runs there, or its NATS server does not answer.
    """
    settings = bus_settings(data_dir)

    async def run() -> T:
        bus = await connect(settings, "anchorwatch-cli", timeout_s=CONNECT_S_MAX)
        try:
            return await use(bus)
        finally:
            await bus.close()

    return asyncio.run(run())
