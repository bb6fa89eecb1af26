"""How a verb that takes its time says what happens."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field


@dataclass
class Told:
    """Says what happens, with the seconds since the beginning: to people on stdout, beside JSON on stderr."""

    as_json: bool
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def __call__(self, text: str) -> None:
        print(f"{self.seconds:5.1f} s  {text}", file=sys.stderr if self.as_json else sys.stdout, flush=True)
