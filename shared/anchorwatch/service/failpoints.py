"""Failpoints: a process that kills or stops itself, or fails, at a durable edge, for tests that need the very moment.

The variable ``ANCHORWATCH_FAILPOINTS`` holds them: ``executor.effect.after=kill@2;planner.step.before=stop``. `kill` is
SIGKILL, `stop` is SIGSTOP, `fail` raises what no code expects, as a defect would; ``@n`` is the n-th time that this
process reaches the edge (default 1). It is no setting: no file can hold it by mistake.
"""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from anchorwatch import edges
from anchorwatch.core.errors import BadSettings
from anchorwatch.edges import Edge

VARIABLE = "ANCHORWATCH_FAILPOINTS"
INJECTED = "a failpoint at"
"""How the text of the error begins that `fail` raises."""
ACTIONS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "fail": None}
_FORM = re.compile(r"(?P<edge>[a-z_.]+)=(?P<action>[a-z]+)(?:@(?P<reach>[1-9][0-9]{0,8}))?")


class Injected(RuntimeError):
    """The defect that a failpoint stands for."""


@dataclass(frozen=True, slots=True)
class Failpoint:
    """At the ``reach``-th time that ``edge`` is reached, send ``number`` to this process; without one, raise `Injected`."""

    edge: Edge
    number: signal.Signals | None
    reach: int


def parse(text: str) -> tuple[Failpoint, ...]:
    """The failpoints in the variable's value.

    Raises:
        BadSettings: naming the part that cannot be used, and what it may be.
    """
    return tuple(_one(part.strip()) for part in text.split(";") if part.strip())


def install(environment: Mapping[str, str], log: structlog.stdlib.BoundLogger) -> None:
    """Set the failpoints that the environment asks for; without any, nothing is installed.

    Raises:
        BadSettings: as `parse`.
    """
    points = parse(environment.get(VARIABLE, ""))
    if points:
        log.warning("failpoints are set", failpoints=[f"{point.edge}@{point.reach}" for point in points])
        edges.install(hook(points, log))


def hook(
    points: tuple[Failpoint, ...],
    log: structlog.stdlib.BoundLogger,
    send: Callable[[int, int], None] = os.kill,
) -> edges.Hook:
    """The hook that counts the reaches of this process, and sends the signals."""
    counts: Counter[Edge] = Counter()

    def reach(edge: Edge) -> None:
        counts[edge] += 1
        for point in points:
            if point.edge is edge and point.reach == counts[edge]:
                what = point.number.name if point.number else "fails"
                log.warning("failpoint", edge=str(edge), reach=point.reach, signal=what)
                if point.number is None:
                    raise Injected(f"{INJECTED} {edge}")
                send(os.getpid(), point.number)

    return reach


def _one(part: str) -> Failpoint:
    match = _FORM.fullmatch(part)
    if match is None:
        raise BadSettings(
            f"{VARIABLE}: {part[:80]!r} is no failpoint",
            hint="write EDGE=ACTION or EDGE=ACTION@N, several with semicolons",
        )
    if match["edge"] not in Edge.__members__.values():
        raise BadSettings(
            f"{VARIABLE}: there is no edge {match['edge'][:80]!r}", hint=f"one of {', '.join(Edge)}"
        )
    if match["action"] not in ACTIONS:
        raise BadSettings(
            f"{VARIABLE}: there is no action {match['action'][:80]!r}", hint=f"one of {', '.join(ACTIONS)}"
        )
    return Failpoint(Edge(match["edge"]), ACTIONS[match["action"]], int(match["reach"] or 1))
