"""Imports everything that services need; the fork server imports it once for all its forks."""

import gc

from anchorwatch.models.tokens import load_counter
from anchorwatch.service import runner

for name in runner.names():
    runner.find(name)
load_counter()
# Without a collection that writes to them, the forks share these pages.
gc.freeze()
