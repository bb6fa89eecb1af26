"""The public module for verbs of packs: a function of the entry-point group `anchorwatch.verbs` gets the `typer` app.

`with_bus` runs a coroutine on a connected bus; `say` prints a value as JSON or as text.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from anchorwatch.bus.port import Bus
from anchorwatch.cli.options import DataDirOption, JsonOption

__all__ = ["DataDirOption", "JsonOption", "say", "with_bus"]

T = TypeVar("T")
CONNECT_S_MAX = 5.0


def with_bus(data_dir: Path | None, use: Callable[[Bus], Awaitable[T]]) -> T:
    """Run ``use`` on a connected bus, as the user ``cli``.

    Raises:
        Unavailable: no mesh runs there, or its NATS server does not answer.
    """
    import asyncio

    from anchorwatch.cli.target import bus_settings
    from anchorwatch.service.connect import connect

    settings = bus_settings(data_dir)

    async def run() -> T:
        bus = await connect(settings, "anchorwatch-cli", timeout_s=CONNECT_S_MAX)
        try:
            return await use(bus)
        finally:
            await bus.close()

    return asyncio.run(run())


def say(value: object, text: str, *, as_json: bool) -> None:
    """Print ``value`` as JSON, or ``text``."""
    from anchorwatch.cli import views

    views.say(value, text, as_json=as_json)
