"""A service as ``anchorwatch serve`` runs it, with the tests' pack: ``python -m tests.support.bench_service NAME``."""

import sys

from anchorwatch.packs import registry
from anchorwatch.service import runner

from tests.support.packs import BENCH

if __name__ == "__main__":
    registry.register(BENCH)
    sys.exit(runner.main(sys.argv[1]))
