"""The protocol, searched: whatever is interleaved with whatever, no property breaks, and rest stays reachable.

Searched is the code: the real machines decide; the model adds the order in which the shells read and write, and the server's
compare-and-set.
"""

from __future__ import annotations

import pytest

from tests.model.configurations import BOUNDED, BOUNDED_STATES_MAX
from tests.model.protocol import explore


@pytest.mark.parametrize("name", BOUNDED)
def test_every_property_holds_in_every_interleaving(name: str) -> None:
    found = explore(BOUNDED[name], BOUNDED_STATES_MAX)
    print(f"{name}: {found}")
    assert found.broken == "", str(found)
    assert found.states > 1
