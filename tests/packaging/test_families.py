"""The selection of tests keeps what it says, and nothing falls out of every family."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = "pytester"

SEEDED = """
import pytest

@pytest.mark.parametrize("kind", ["a", "b"])
@pytest.mark.parametrize("seed", [8, 3, 5])
def test_seeded(seed, kind): ...

@pytest.mark.parametrize("other", [1, 2, 3])
def test_other(other): ...

@pytest.mark.slow
def test_slow(): ...

@pytest.mark.parametrize("_asyncio_loop_factory", ["sim", "nats"])
def test_on_buses(_asyncio_loop_factory): ...
"""
OTHERS = {"test_other[1]", "test_other[2]", "test_other[3]"}
SLOW = {"test_slow", "test_on_buses[nats]"}
COMMON = OTHERS | {"test_on_buses[sim]"}


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


def collected(pytester: pytest.Pytester, *options: str) -> set[str]:
    pytester.makepyfile(SEEDED)
    pytester.makeini("[pytest]\nmarkers = slow")
    result = pytester.runpytest_subprocess("--collect-only", "-q", "-p", "tests.support.families", *options)
    return {line.partition("::")[2] for line in result.outlines if "::" in line}


@pytest.mark.parametrize(
    ("options", "seeds"), [((), (3, 5)), (("--seeds", "1"), (3,)), (("--seeds", "all"), (3, 5, 8))]
)
def test_first_seeds_of_each_case_are_kept(
    pytester: pytest.Pytester, options: tuple[str, ...], seeds: tuple[int, ...]
) -> None:
    seeded = {f"test_seeded[{seed}-{kind}]" for seed in seeds for kind in "ab"}
    assert collected(pytester, *options) == COMMON | SLOW | seeded


def test_quick_leaves_out_slow_tests_and_the_real_server(pytester: pytest.Pytester) -> None:
    seeded = {f"test_seeded[3-{kind}]" for kind in "ab"}
    assert collected(pytester, "--quick") == COMMON | seeded
