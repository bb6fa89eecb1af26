"""A machine below the yard that runs no processes: it keeps who is alive, and does as told."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field

from anchorwatch_fleet.yard.births import Birth
from anchorwatch_fleet.yard.processes import OnExit


@dataclass
class FakeProcesses:
    """``deaf``: instances that only SIGKILL ends. ``refuses``: how many starts the machine refuses."""

    born: list[Birth] = field(default_factory=list)
    alive: dict[str, tuple[int, OnExit]] = field(default_factory=dict)
    deaf: set[str] = field(default_factory=set)
    sent: list[tuple[str, str]] = field(default_factory=list)
    refuses: int = 0

    async def start(self, instance: str, epoch: int, effect_key: str, on_exit: OnExit) -> int:
        if self.refuses:
            self.refuses -= 1
            raise OSError("no more processes")
        pid = 1000 + len(self.born)
        self.born.append(Birth(instance, epoch, effect_key, pid))
        self.alive[instance] = (epoch, on_exit)
        return pid

    def signal(self, instance: str, number: signal.Signals) -> bool:
        if instance not in self.alive:
            return False
        self.sent.append((instance, number.name))
        if number is signal.SIGKILL or (number is signal.SIGTERM and instance not in self.deaf):
            self.exit(instance, -number)
        return True

    async def ended(self, instance: str, timeout_s: float) -> bool:  # noqa: ARG002 - nothing takes time here
        return instance not in self.alive

    def births(self) -> list[Birth]:
        return list(self.born)

    def log_lines(self, instance: str, lines_max: int) -> list[str]:
        return [f"{instance} line {number}" for number in range(1, 4)][-lines_max:]

    def exit(self, instance: str, code: int) -> None:
        """The process ends by itself."""
        epoch, on_exit = self.alive.pop(instance)
        on_exit(instance, epoch, code)

    def yard_dies(self) -> None:
        """The yard was killed, and its workers with it; nobody is told."""
        self.alive.clear()
