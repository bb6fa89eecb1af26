"""The gateway service: the mesh's face. Holds no truth."""

from __future__ import annotations

from anchorwatch.service.context import ServiceContext

from anchorwatch_gateway.app import build
from anchorwatch_gateway.parts import assemble
from anchorwatch_gateway.server import bind, serve, url_of, write_address


async def run(context: ServiceContext) -> None:
    """Serve HTTP until told to stop."""
    parts = await assemble(context)
    app = build(parts)
    listener = bind(context.settings.host, context.settings.port)
    url = url_of(listener)
    context.log.info("listening", url=url)
    try:
        write_address(context.settings.data_dir, url)
    except OSError as error:
        context.log.info("the address is not left in a file", reason=str(error))
    await serve(app, listener, context.stopping, context.ready)
