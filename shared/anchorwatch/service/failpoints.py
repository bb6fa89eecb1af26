"""Failpoints: a test makes a process kill itself, stop, or fail at a durable edge.

The variable ``ANCHORWATCH_FAILPOINTS`` lists them: ``executor.effect.after=kill@2;planner.step.before=stop``. `kill` is SIGKILL,
`stop` is SIGSTOP, and `fail` raises an unexpected error, as a defect would. ``@n`` is the n-th time that this process reaches
the edge (default 1). It is an environment variable and not a setting, so that no settings file contains it by mistake.
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
"""The prefix of the error text that `fail` raises."""
ACTIONS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "fail": None}
_FORM = re.compile(r"(?P<edge>[a-z_.]+)=(?P<action>[a-z]+)(?:@(?P<reach>[1-9][0-9]{0,8}))?")


class InjectedFault(RuntimeError):
    """The defect that a failpoint simulates."""


@dataclass(frozen=True, slots=True)
class Failpoint:
    """At this process's ``reach``-th pass of ``edge``, send it the signal ``number``; if None, raise `InjectedFault`."""

    edge: Edge
    number: signal.Signals | None
    reach: int


def parse(text: str) -> tuple[Failpoint, ...]:
    """The failpoints in the variable's value.

    Raises:
        BadSettings: it names the invalid part and the valid choices.
    """
    return tuple(_one(part.strip()) for part in text.split(";") if part.strip())


def install(environment: Mapping[str, str], log: structlog.stdlib.BoundLogger) -> None:
    """Install the hook if the environment sets failpoints.

    Raises:
        BadSettings: as `parse`.
    """
    points = parse(environment.get(VARIABLE, ""))
    if points:
        log.warning("failpoints.set", failpoints=[f"{point.edge}@{point.reach}" for point in points])
        edges.install(hook(points, log))


def hook(
    points: tuple[Failpoint, ...],
    log: structlog.stdlib.BoundLogger,
    send: Callable[[int, int], None] = os.kill,
) -> edges.Hook:
    """The hook that counts how often this process reaches each edge, and triggers the failpoints."""
    counts: Counter[Edge] = Counter()

    def reach(edge: Edge) -> None:
        counts[edge] += 1
        for point in points:
            if point.edge is edge and point.reach == counts[edge]:
                what = point.number.name if point.number else "fails"
                log.warning("failpoint.reached", edge=str(edge), reach=point.reach, signal=what)
                if point.number is None:
                    raise InjectedFault(f"{INJECTED} {edge}")
                send(os.getpid(), point.number)

    return reach


def _one(part: str) -> Failpoint:
    match = _FORM.fullmatch(part)
    if match is None:
        raise BadSettings(
            f"{VARIABLE}: {part[:80]!r} is not a failpoint",
            hint="write EDGE=ACTION or EDGE=ACTION@N, separated by semicolons",
        )
    if match["edge"] not in Edge.__members__.values():
        raise BadSettings(
            f"{VARIABLE}: unknown edge {match['edge'][:80]!r}", hint=f"choose one of {', '.join(Edge)}"
        )
    if match["action"] not in ACTIONS:
        raise BadSettings(
            f"{VARIABLE}: unknown action {match['action'][:80]!r}", hint=f"choose one of {', '.join(ACTIONS)}"
        )
    return Failpoint(Edge(match["edge"]), ACTIONS[match["action"]], int(match["reach"] or 1))
