"""The event loop of a service: libuv's where it is installed, else the standard library's. They behave alike.

A turn is some sixty small messages, and most of what it costs is the loop that carries them (docs/performance.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

new_event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
"""Makes the loop of one process."""

try:
    import uvloop
except ImportError:
    pass
else:
    new_event_loop = uvloop.new_event_loop
