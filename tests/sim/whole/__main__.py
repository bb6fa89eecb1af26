"""`make soak`: many runs of the whole mesh, on all processors, until one breaks a promise or all have kept them."""

from __future__ import annotations

import argparse
import multiprocessing
import multiprocessing.pool
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.sim.whole.blocks import replay
from tests.sim.whole.soak import one
from tests.sim.whole.summary import Summary

TOLD_EVERY_S = 30.0


@contextmanager
def worker_pool(jobs: int) -> Iterator[multiprocessing.pool.Pool]:
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield pool


def main() -> int:
    """Run; returns the exit code: 1 where a promise was broken."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000, help="how many (default 10,000)")
    parser.add_argument("--first", type=int, default=1_000_000, help="the first seed (default 1,000,000)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--keep-going", action="store_true", help="go on after a violation")
    wanted = parser.parse_args()
    summary, broken = Summary(), 0
    began_s = told_s = time.monotonic()
    with worker_pool(wanted.jobs) as pool:
        seeds = range(wanted.first, wanted.first + wanted.runs)
        for report, seconds in pool.imap_unordered(one, seeds, chunksize=2):
            summary.add(report, seconds)
            if report.violations:
                broken += 1
                print(
                    f"seed {report.seed}: {'; '.join(report.violations)}\n  {replay(report.seed)}", flush=True
                )
                if not wanted.keep_going:
                    break
            if time.monotonic() - told_s > TOLD_EVERY_S:
                told_s = time.monotonic()
                print(_rate(summary, told_s - began_s, broken), flush=True)
    print(_rate(summary, time.monotonic() - began_s, broken), *summary.lines(), sep="\n")
    if summary.unreached:
        print(f"never reached: {', '.join(summary.unreached)}")
    return 1 if broken or summary.unreached else 0


def _rate(summary: Summary, seconds: float, broken: int) -> str:
    return f"{summary.runs} runs, {60 * summary.runs / seconds:.0f} a minute, {broken} with a broken promise"


if __name__ == "__main__":
    sys.exit(main())
