"""A service process as `anchorwatch serve` makes it, around a service that waits: ``real_service.py NAME [HOW]``."""

import asyncio
import sys

from anchorwatch.bus.port import StreamMissing
from anchorwatch.core.errors import BadSettings, Unavailable
from anchorwatch.service import runner
from anchorwatch.service.context import ServiceContext

how = sys.argv[2] if len(sys.argv) > 2 else "waits"
misfortunes = [
    Unavailable("the bus went away"),
    ExceptionGroup("two", [Unavailable("and again")]),
    StreamMissing("this server has not heard of it yet"),
]


async def run(context: ServiceContext) -> None:
    if how == "crashes":
        raise ValueError(f"with {context.settings.nats_url} in its text, and s3cret-model-key")
    if how == "refuses":
        raise BadSettings("ops.toml has no channel", hint="add one")
    if how == "returns":
        return
    if how == "stumbles" and misfortunes:
        raise misfortunes.pop(0)
    if how == "tells":
        context.log.warning(
            "a token: s3cret-token-value", password="s3cret-by-name", other="s3cret-model-key"
        )
    context.ready.set()
    await context.stopping.wait()
    if how == "stubborn":
        await asyncio.sleep(1000)


if how == "stubborn":
    runner.DRAIN_S_MAX = 0.3
sys.exit(runner.main(sys.argv[1], run))
