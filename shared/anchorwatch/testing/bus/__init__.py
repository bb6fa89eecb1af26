"""The simulated bus: JetStream's semantics in memory, with seeded randomness and injected faults.

    async def main() -> None:
        faults = Faults(random.Random(seed), {FaultKind.LOST_ACK: 0.05, FaultKind.STALE_READ: 0.1})
        server = SimServer(seed=seed, faults=faults, latency_s=(0.0002, 0.002), trace=lines)
        bus = server.connect(name="planner-1")  # a `Bus`, like the real one
        ...
        bus.kill()  # or cut/reconnect, freeze/thaw; server.stop/start, server.step_clock

    run(main(), seed)

`SimServer` holds the durable state and outlives its clients. Inside `run` time is virtual: one seed gives one run, byte
for byte in ``lines``. Under a plain loop time is real, and `SimServer.advance` moves it forward. Random faults occur at
the given rates; ``server.faults.counts`` counts them by kind.

Where to find what, lowest layer first:

- `loop`: virtual time, the order of callbacks, seeded randomness; `clock`: the server's time and its timers
- `faults`: the kinds of faults, their rates and counts; `link`: one client's connection and permissions
- `compare`: specs that differ; `stream`: stored messages and their subjects; `writes`: checks, schedules, sources
- `consumers`: delivery and acks on the server; `rpc`: announcements and requests; `engine`: the server as a whole
- `calls`, `kv`, `reader`, `bus`: a client's side; `server`: the engine with its clients
"""

from anchorwatch.testing.bus.bus import SimBus
from anchorwatch.testing.bus.clock import SimClock
from anchorwatch.testing.bus.faults import FaultKind, Faults
from anchorwatch.testing.bus.link import SimUser
from anchorwatch.testing.bus.loop import (
    Deadlock,
    Livelock,
    SimulationStuck,
    TimeLimitReached,
    VirtualTimeLoop,
    run,
)
from anchorwatch.testing.bus.server import SimServer

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
