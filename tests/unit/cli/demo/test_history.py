"""The history of a session is what its records say: read from the journal of a whole mesh in memory."""

from __future__ import annotations

import asyncio

from anchorwatch.bus.port import Stored
from anchorwatch.bus.sim.loop import run
from anchorwatch.cli.demo.history import History, read_history
from anchorwatch.core.records import Kind
from anchorwatch.testing.mesh import SimMesh
