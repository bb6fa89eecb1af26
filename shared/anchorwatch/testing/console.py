"""The console of a long test run: progress with seconds, and an orderly end on signals."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from anchorwatch.testing.harness import Outcome


@dataclass
class Console:
    """Prints progress with the seconds since the start: on stdout, or on stderr if the output is JSON."""

    as_json: bool
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def __call__(self, text: str) -> None:
        print(f"{self.seconds:5.1f} s  {text}", file=sys.stderr if self.as_json else sys.stdout, flush=True)

    def conclude(self, outcome: Outcome) -> int:
        """Print the outcome of the run; returns the exit code."""
        data = json.dumps(outcome.to_json(), indent=2, default=str)
        sys.stdout.write((data if self.as_json else "\n".join(outcome.lines)) + "\n")
        return 0 if outcome.ok else 1


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the run as Ctrl-C does: in order."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number in before:
        signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore Ctrl-C while the mesh stops, which takes a bounded time."""
    before: Any = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
