"""A pytest plug-in: which of the collected tests run.

``--seeds N`` keeps the first N seeds of each test that has a parameter ``seed``; ``--seeds all`` keeps them all.
``--quick`` keeps the family of `make quick`: no NATS server, no test marked ``slow``, one seed, few hypothesis examples.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Hashable

SEEDS_MAX = 2
EXAMPLES_MAX = 20


# The speed of a machine proves nothing about a property: no deadline, and no refusal of examples that are slow to draw.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("untimed"), max_examples=EXAMPLES_MAX)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("families")
    group.addoption("--quick", action="store_true", help="run the family of `make quick`")
    group.addoption(
        "--seeds",
        metavar="N|all",
        help=f"seeds of each seeded test (default: {SEEDS_MAX}; with --quick: 1)",
    )


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("quick" if config.getoption("quick") else "untimed")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    quick = config.getoption("quick")
    dropped = _surplus_seeds(items, config.getoption("seeds") or str(1 if quick else SEEDS_MAX))
    if quick:
        dropped |= {item for item in items if item.get_closest_marker("slow") or _needs_server(item)}
    if dropped:
        config.hook.pytest_deselected(items=[item for item in items if item in dropped])
        items[:] = [item for item in items if item not in dropped]


def _surplus_seeds(items: list[pytest.Item], option: str) -> set[pytest.Item]:
    if option == "all":
        return set()
    kept_max = int(option)
    by_test: dict[Hashable, list[tuple[int, pytest.Item]]] = defaultdict(list)
    for item in items:
        match _parameters(item):
            case {"seed": int(seed), **others}:
                test = item.nodeid.partition("[")[0]
                by_test[(test, repr(others))].append((seed, item))
            case _:
                pass
    surplus: set[pytest.Item] = set()
    for seeded in by_test.values():
        seeded.sort(key=lambda pair: pair[0])
        surplus.update(item for _, item in seeded[kept_max:])
    return surplus


def _parameters(item: pytest.Item) -> dict[str, object]:
    return (
        dict(item.callspec.params) if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    )


def _needs_server(item: pytest.Item) -> bool:
    # In tests/conformance the event loop decides the bus: a virtual one the simulation, a real one the server.
    asyncio_mark = item.get_closest_marker("asyncio")
    if asyncio_mark and asyncio_mark.kwargs.get("loop_factories") == ["nats"]:
        return True
    on_nats = (
        isinstance(item, pytest.Function)
        and hasattr(item, "callspec")
        and item.callspec.id.split("-")[0] == "nats"
    )
    return on_nats or "nats_server" in getattr(item, "fixturenames", ())
