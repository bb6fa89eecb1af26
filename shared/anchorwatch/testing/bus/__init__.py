"""The bus in memory: JetStream's semantics, a seed instead of chance, and faults on order.

    async def main() -> None:
        faults = Faults(random.Random(seed), {FaultKind.LOST_ACK: 0.05, FaultKind.STALE_READ: 0.1})
        server = SimServer(seed=seed, faults=faults, latency_s=(0.0002, 0.002), trace=lines)
        bus = server.connect(name="planner-1")  # a `Bus`, as the real one
        ...
        bus.kill()  # or cut/mend, freeze/thaw; server.stop/start, server.step_clock

    run(main(), seed)

`SimServer` is what is durable, and outlives its clients. Inside `run` time is virtual, and a seed is one run, byte for
byte in ``lines``. Under a plain loop it works too: time is real there, and `SimServer.advance` moves it on. A fault of
chance strikes at the rates given; what strikes is counted by kind in ``server.faults.counts``.
"""

from anchorwatch.testing.bus.bus import SimBus
from anchorwatch.testing.bus.clock import SimClock
from anchorwatch.testing.bus.faults import FaultKind, Faults
from anchorwatch.testing.bus.loop import (
    Deadlock,
    Livelock,
    SimulationStuck,
    TimeLimitReached,
    VirtualTimeLoop,
    run,
)
from anchorwatch.testing.bus.server import SimServer
from anchorwatch.testing.bus.users import SimUser

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
