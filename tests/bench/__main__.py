"""``python -m tests.bench [--full] [--json FILE]``."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path

from tests.bench import report
from tests.bench.plan import FULL, QUICK
from tests.bench.run import run


def main() -> int:
    """Measure, print, and fail only when the counts do not add up: how fast it was is for people to judge."""
    parser = argparse.ArgumentParser(
        prog="make bench", description="The durable turn, measured beside a floor."
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="about a minute (the default)")
    size.add_argument(
        "--full",
        action="store_true",
        help="some ten minutes: longer, with a lazy mesh, more kills, and a session of 5,000 turns",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--history", type=int, metavar="N", help="turns of the one session that grows old")
    parser.add_argument(
        "--restate",
        action="store_true",
        help="beside Restate too, which npm and pip bring into a directory of this run",
    )
    given = parser.parse_args()
    plan = FULL if given.full else QUICK
    if given.history:
        plan = replace(plan, history=given.history)
    plan = replace(plan, restate=given.restate)
    command = " ".join(("python -m tests.bench", *sys.argv[1:]))
    results = asyncio.run(run(plan, command, lambda text: print(text, file=sys.stderr, flush=True)))
    print(report.text(results))
    if given.json:
        given.json.write_text(json.dumps(results.to_json(), indent=2) + "\n")
    return 0 if all(counts.add_up for counts in results.counts.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
