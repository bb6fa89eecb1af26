"""A service as ``anchorwatch serve`` runs it, which also knows the pack of the bench: ``python -m tests.bench.serve NAME``."""

import sys

from anchorwatch.packs import registry
from anchorwatch.service import runner

from tests.bench.pack import PACK

if __name__ == "__main__":
    registry.register(PACK)
    sys.exit(runner.main(sys.argv[1]))
