"""What a measurement was made on, without which its absolute figures say nothing."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.support.nats_server import server_binary

FSYNCS = 100
BLOCK = b"\0" * 1024


def facts() -> dict[str, Any]:
    """Processor, kernel, versions, and how busy it is."""
    version = subprocess.run([server_binary(), "--version"], capture_output=True, text=True, check=True)
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "nats_server": version.stdout.strip().rpartition(" ")[2],
        "load_average": round(os.getloadavg()[0], 2),
    }


def fsync_p50_ms(directory: Path) -> float:
    """Appending 1 KiB and having it on disk, median."""
    took = []
    with (directory / "fsync").open("wb", buffering=0) as file:
        for _ in range(FSYNCS):
            begun = time.monotonic()
            file.write(BLOCK)
            os.fsync(file.fileno())
            took.append(time.monotonic() - begun)
    return statistics.median(took) * 1000


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
