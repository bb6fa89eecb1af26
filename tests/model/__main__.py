"""``make model``: the configurations that are too large for each run of the suite. Exit 1: a property broke."""

from __future__ import annotations

import argparse
import sys
import time

from tests.model.configurations import BOUNDED, LARGE, LARGE_STATES_MAX
from tests.model.protocol import explore


def main() -> int:
    """Search each configuration whose name has the given words."""
    parser = argparse.ArgumentParser(prog="make model", description=__doc__)
    parser.add_argument("words", nargs="*", help="only configurations whose names have all of these")
    words = parser.parse_args().words
    broken = 0
    for name, setup in {**BOUNDED, **LARGE}.items():
        if all(word in name for word in words):
            started = time.process_time()
            found = explore(setup, LARGE_STATES_MAX)
            print(f"{name}: {found} ({time.process_time() - started:.0f} s)", flush=True)
            broken += bool(found.broken)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
