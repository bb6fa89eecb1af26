"""A process dies or stops only at the edge that its environment names."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from anchorwatch import edges
from anchorwatch.core.errors import BadSettings
from anchorwatch.edges import Edge
from anchorwatch.service import failpoints

LOG: structlog.stdlib.BoundLogger = structlog.get_logger()
PROGRAM = """
import os, structlog
from anchorwatch.edges import Edge, reached
from anchorwatch.service import failpoints

failpoints.install(os.environ, structlog.get_logger())
for n in range(3):
    print("step", n, flush=True)
    reached(Edge.PLANNER_STEP_BEFORE)
    reached(Edge.PLANNER_STEP_AFTER)
"""


@pytest.fixture(autouse=True)
def no_hook() -> Iterator[None]:
    yield
    edges.install(None)


def start(failpoints_: str, *command: str) -> subprocess.Popen[str]:
    environment = {**os.environ, failpoints.VARIABLE: failpoints_}
    return subprocess.Popen(
        [sys.executable, *command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def steps(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("step")]


def test_edge_name_has_service_act_and_moment() -> None:
    for edge in Edge:
        assert re.fullmatch(r"[a-z]+\.[a-z_]+\.(before|after)", edge)
        assert edge.name == edge.value.replace(".", "_").upper()


def test_around_reaches_both_edges() -> None:
    seen: list[Edge | str] = []
    edges.install(seen.append)
    with edges.around(Edge.PLANNER_STEP_BEFORE):
        seen.append("act")
    assert seen == [Edge.PLANNER_STEP_BEFORE, "act", Edge.PLANNER_STEP_AFTER]


def test_failing_act_does_not_reach_its_edge_after() -> None:
    seen: list[Edge] = []
    edges.install(seen.append)
    with pytest.raises(ZeroDivisionError), edges.around(Edge.PLANNER_STEP_BEFORE):
        raise ZeroDivisionError
    assert seen == [Edge.PLANNER_STEP_BEFORE]


@pytest.mark.parametrize("edge", [Edge.PLANNER_STEP_AFTER, Edge.PLANNER_ACK_BEFORE])
def test_around_requires_a_pair_of_edges(edge: Edge) -> None:
    with pytest.raises(KeyError), edges.around(edge):
        pass


def test_edge_without_a_hook_has_no_effect() -> None:
    seen: list[Edge] = []
    edges.install(seen.append)
    edges.reached(Edge.PLANNER_STEP_BEFORE)
    edges.install(None)
    edges.reached(Edge.PLANNER_STEP_AFTER)
    assert seen == [Edge.PLANNER_STEP_BEFORE]


def test_process_kills_itself_at_the_nth_reach() -> None:
    with start("planner.step.after=kill@2", "-c", PROGRAM) as process:
        output, _ = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL
    assert steps(output) == ["step 0", "step 1"]


def test_process_that_stops_itself_resumes_on_sigcont() -> None:
    with start("planner.step.before=stop", "-c", PROGRAM) as process:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        os.kill(process.pid, signal.SIGCONT)
        output, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert steps(output) == ["step 0", "step 1", "step 2"]


def test_each_failpoint_counts_its_own_edge() -> None:
    points = failpoints.parse("executor.effect.after=kill; planner.step.before=stop@2;")
    sent: list[int] = []
    hook = failpoints.hook(points, LOG, lambda _pid, number: sent.append(number))
    for edge in (
        Edge.PLANNER_STEP_BEFORE,
        Edge.EXECUTOR_EFFECT_BEFORE,
        Edge.EXECUTOR_EFFECT_AFTER,
        Edge.EXECUTOR_EFFECT_AFTER,
        Edge.PLANNER_STEP_BEFORE,
    ):
        hook(edge)
    assert sent == [signal.SIGKILL, signal.SIGSTOP]


def test_failpoint_can_simulate_a_defect() -> None:
    sent: list[int] = []
    reach = failpoints.hook(
        failpoints.parse("executor.claim.before=fail@2"), LOG, lambda _, number: sent.append(number)
    )
    reach(Edge.EXECUTOR_CLAIM_BEFORE)
    with pytest.raises(failpoints.InjectedFault, match=r"a failpoint at executor\.claim\.before"):
        reach(Edge.EXECUTOR_CLAIM_BEFORE)
    reach(Edge.EXECUTOR_CLAIM_BEFORE)
    assert sent == []


def test_unset_variable_installs_nothing() -> None:
    failpoints.install({}, LOG)
    edges.reached(Edge.PLANNER_STEP_BEFORE)
    assert failpoints.parse("") == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("planner.stop.before=kill", "unknown edge 'planner.stop.before'"),
        ("planner.step.before=sleep", "unknown action 'sleep'"),
        ("planner.step.before", "is not a failpoint"),
        ("planner.step.before=kill@0", "is not a failpoint"),
        ("planner.step.before=kill@x", "is not a failpoint"),
    ],
)
def test_invalid_failpoint_is_named(text: str, says: str) -> None:
    with pytest.raises(BadSettings, match=re.escape(says)) as caught:
        failpoints.parse(f"executor.claim.before=kill;{text}")
    assert caught.value.hint


def test_service_does_not_start_with_an_invalid_failpoint(tmp_path: Path) -> None:
    program = "import sys; from anchorwatch.service.runner import main; sys.exit(main('executor'))"
    with start("no.such.edge=kill", "-c", f"import os; os.chdir({str(tmp_path)!r}); {program}") as process:
        _, errors = process.communicate(timeout=30)
    assert process.returncode == BadSettings.exit_code
    assert "unknown edge 'no.such.edge'" in errors
