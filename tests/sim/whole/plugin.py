"""A pytest plug-in: sums up the whole-mesh runs of all workers, prints the summary, and fails a session that missed an edge."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.sim.whole.summary import Summary

if TYPE_CHECKING:
    from tests.sim.whole.run import Report

SUMMARY = pytest.StashKey[Summary]()
WORKER_KEY = "whole_mesh"
RUNS_ENOUGH = 500


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SUMMARY] = Summary()


@pytest.fixture
def note_run(pytestconfig: pytest.Config) -> Callable[[Report, float], None]:
    """Count a run in the session's summary: (report, seconds of work)."""
    return pytestconfig.stash[SUMMARY].add


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """A worker has ended (xdist)."""
    del error
    output = getattr(node, "workeroutput", {})
    if WORKER_KEY in output:
        node.config.stash[SUMMARY].merge(output[WORKER_KEY])


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    summary = session.config.stash[SUMMARY]
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[WORKER_KEY] = summary.to_json()
    elif missed(summary):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    summary = config.stash[SUMMARY]
    if not summary.runs:
        return
    terminalreporter.section("simulation")
    for line in summary.lines():
        terminalreporter.line(line)
    if missed(summary):
        terminalreporter.line(f"FAILED: never reached: {', '.join(summary.unreached)}", red=True)


def missed(summary: Summary) -> bool:
    """Whether as many runs as there should be left an edge out; fewer prove nothing."""
    return summary.runs >= RUNS_ENOUGH and bool(summary.unreached)
