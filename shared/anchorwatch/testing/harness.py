"""What `demo` and `crash-test` share: a kill, a check, and the outcome of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from anchorwatch.edges import Edge


@dataclass(frozen=True, slots=True)
class Kill:
    """A process that was killed with signal 9: at a durable ``edge``, or ``during`` an observed activity.

    ``known``: its pid was in mesh.json. ``new_pid``: of the process that replaced it after ``back_s`` (None: none did).
    """

    instance: str
    edge: Edge | None = None
    during: str = ""
    pid: int = 0
    known: bool = False
    new_pid: int | None = None
    back_s: float = 0.0

    @property
    def service(self) -> str:
        return self.instance.rpartition("-")[0] or self.instance

    def to_json(self) -> dict[str, Any]:
        return {"service": self.service, **asdict(self)}


@dataclass(frozen=True, slots=True)
class Check:
    """One promise: what was expected, what was seen, and whether they agree."""

    name: str
    expected: str
    seen: str
    ok: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def to_text(self) -> str:
        """Three lines for people."""
        return (
            f"{'ok    ' if self.ok else 'FAILED'}  {self.name}\n"
            f"          expected  {self.expected}\n"
            f"          seen      {self.seen}"
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run. ``data``: for programs; ``lines``: for people; ``kept``: the data directory, if it is kept."""

    checks: Sequence[Check]
    data: Mapping[str, Any]
    lines: Sequence[str]
    kept: str | None = None

    @property
    def ok(self) -> bool:
        """Whether there are checks, and all of them hold."""
        return bool(self.checks) and not self.failed

    @property
    def failed(self) -> list[str]:
        """The names of the checks that do not hold."""
        return [check.name for check in self.checks if not check.ok]

    def to_json(self) -> dict[str, Any]:
        checks = [check.to_json() for check in self.checks]
        return {"ok": self.ok, **self.data, "data_dir": self.kept, "checks": checks}
