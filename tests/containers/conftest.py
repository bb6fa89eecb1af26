"""One docker engine for all tests of this directory."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.containers.engine import ASKED, Engine, docker_engine

# Minutes, and root: only when asked for (`make test-containers`, and so CI).
collect_ignore_glob = [] if os.environ.get(ASKED) else ["test_*"]


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    with docker_engine() as found:
        yield found
