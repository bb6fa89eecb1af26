"""The bus in memory: JetStream's semantics, a seed instead of chance, and faults on order."""

from anchorwatch.bus.sim.bus import SimBus
from anchorwatch.bus.sim.clock import SimClock
from anchorwatch.bus.sim.faults import FaultKind, Faults
from anchorwatch.bus.sim.loop import (
    Deadlock,
    Livelock,
    SimulationStuck,
    TimeLimitReached,
    VirtualTimeLoop,
    run,
)
from anchorwatch.bus.sim.server import SimServer
from anchorwatch.bus.sim.users import SimUser

__all__ = [
    "Deadlock",
    "FaultKind",
    "Faults",
    "Livelock",
    "SimBus",
    "SimClock",
    "SimServer",
    "SimUser",
    "SimulationStuck",
    "TimeLimitReached",
    "VirtualTimeLoop",
    "run",
]
