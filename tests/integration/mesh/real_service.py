"""A service process as `anchorwatch serve` makes it, around a service that only waits: ``real_service.py NAME``."""

import sys

from anchorwatch.service import runner
from anchorwatch.service.context import ServiceContext


async def run(context: ServiceContext) -> None:
    context.ready.set()
    if context.identity.instance.startswith("crasher"):
        raise ValueError("as ordered")
    await context.stopping.wait()


sys.exit(runner.main(sys.argv[1], run))
