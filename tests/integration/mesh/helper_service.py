"""A service without work: it announces readiness and ends on a signal. Files in ``orders`` change its behaviour.

The supervisor runs it instead of each real service.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from anchorwatch.service.readiness import Readiness

POLL_S = 0.02


def main(service: str) -> None:
    instance = os.environ["ANCHORWATCH_INSTANCE"]
    orders = Path(os.environ["ANCHORWATCH_DATA_DIR"]) / "orders"
    if (orders / f"{service}.refuse").exists():
        sys.stderr.write(f"{service}: no valid settings\n")
        sys.exit(2)
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    signal.signal(signal.SIGINT, lambda *_: stop.append(2))
    sys.stderr.write(f"{instance} pid {os.getpid()} started\n")
    while (orders / f"{instance}.unready").exists():
        if stop:
            return
        time.sleep(POLL_S)
    Readiness().announce()
    if (orders / f"{service}.forks").exists() and not (orders.parent / "orphan").exists():
        child = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True
        )
        (orders.parent / "orphan.new").write_text(str(child.pid))
        (orders.parent / "orphan.new").rename(orders.parent / "orphan")
    while not stop:
        time.sleep(POLL_S)
    if (orders / f"{service}.stubborn").exists():
        time.sleep(1000)
    # The order of the ends, and the signal of each.
    with (Path(os.environ["ANCHORWATCH_DATA_DIR"]) / "ends").open("a") as ends:
        ends.write(f"{instance} {'TERM' if stop[0] == 1 else 'INT'}\n")


main(sys.argv[1])
