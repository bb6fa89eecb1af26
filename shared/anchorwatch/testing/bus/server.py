"""The simulated server: an engine and its clients."""

from __future__ import annotations

from collections.abc import Iterable

from anchorwatch.core.errors import Denied
from anchorwatch.testing.bus.bus import SimBus
from anchorwatch.testing.bus.clock import SimClock
from anchorwatch.testing.bus.engine import Engine
from anchorwatch.testing.bus.faults import FaultKind, Faults
from anchorwatch.testing.bus.link import Link, SimUser


class SimServer(Engine):
    """One server. ``seed`` chooses queue members and delays; ``faults`` has its own random source.

    ``users``: with none, every name may connect and do everything.
    """

    def __init__(
        self,
        *,
        clock: SimClock | None = None,
        faults: Faults | None = None,
        seed: int = 0,
        users: Iterable[SimUser] = (),
        latency_s: tuple[float, float] = (0.0, 0.0),
        replicated: bool = False,
        trace: list[str] | None = None,
    ) -> None:
        super().__init__(
            clock=clock, faults=faults, seed=seed, latency_s=latency_s, replicated=replicated, trace=trace
        )
        self._users = {user.name: user for user in users}
        self.clients: list[SimBus] = []

    def connect(self, user: str = "anyone", name: str = "") -> SimBus:
        """A new client.

        Raises:
            Denied: there are users, and ``user`` is not one of them.
        """
        known = self._users.get(user) if self._users else SimUser(user)
        if known is None:
            raise Denied(f"unknown user {user!r}")
        link = Link(self.clock, name or f"{user}-{len(self.clients) + 1}")
        if not self.running:
            link.cut()
        bus = SimBus(self, link, known, self._forget)
        self.clients.append(bus)
        return bus

    def stop(self) -> None:
        """Crash. What was acknowledged stays."""
        if self.running:
            self.running = False
            self.faults.count(FaultKind.RESTART)
            self.trace("server stops")
            for bus in self.clients:
                bus.link.cut()
                bus.leave_pulls()

    def start(self) -> None:
        """Start again: clients reconnect, and overdue schedules fire."""
        if not self.running:
            self.running = True
            self.trace("server starts")
            for bus in self.clients:
                bus.link.reconnect()
            self._schedules.fire_overdue()

    def _forget(self, bus: SimBus) -> None:
        """Remove a client that was closed or killed, with what lived in its connection."""
        if bus in self.clients:
            self.clients.remove(bus)
        self.router.drop(bus.link)


__all__ = ["SimServer"]
