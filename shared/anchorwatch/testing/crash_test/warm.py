"""Imported once by the fork server, so that each of its forks has it: what services need, before they know who they are."""

import gc

from anchorwatch.models.tokens import load_counter
from anchorwatch.service import runner

for name in runner.names():
    runner.find(name)
load_counter()
# Frozen, the forks share these pages for as long as they live.
gc.freeze()
