"""Launches in vain: their instances ended before they worked. After a few in a row, the next launch waits. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from anchorwatch_fleet.instances import Instance

TOLERATED = 2
"""Launches in vain that may be accidents: the next one follows at once."""
BACKOFF_MS, BACKOFF_MS_MAX = 15_000, 600_000
"""Wait after the last death before the next launch: doubled with each further launch in vain."""
FORGET_MS = 2 * BACKOFF_MS_MAX
"""After so long without a death, nothing is known to be wrong with launches."""
OLD_MS = 12 * BACKOFF_MS_MAX
"""An older death does not count."""
SURVIVED_MS = 60_000
"""An instance that has run for so long is well, even if there was no job for it."""
DEATHS_LISTED_MAX = 20
"""The yard lists no more. A list full of deaths counts as one launch for each `DEATHS_OF_A_LAUNCH`: it hides older ones."""
DEATHS_OF_A_LAUNCH = 4


@dataclass(frozen=True, slots=True)
class LaunchesInVain:
    """The newest ``launches`` in a row that were in vain, and the ``deaths`` of their instances, as far as they are listed.

    ``next_at_ms``: before it, no launch should follow.
    """

    launches: int = 0
    deaths: int = 0
    next_at_ms: int = 0


def leads_to_nothing(launches: int, deaths: int) -> bool:
    """Whether launches in vain are no accident any more."""
    return launches > TOLERATED or deaths >= DEATHS_LISTED_MAX


def launches_in_vain(instances: Sequence[Instance], at_ms: int) -> LaunchesInVain:
    """The launches in vain since the newest launch that worked. A launch is known by its effect key.

    A launch worked if one of its instances has done a job, or has run for a minute. It was in vain if all ended, without a
    request and without a job. Any other is not decided: an instance still loads, was stopped, or its jobs are not known.
    """
    launches: dict[str, list[Instance]] = {}
    for each in sorted(instances, key=lambda each: _number(each.id), reverse=True):
        launches.setdefault(each.effect_key or each.id, []).append(each)
    dead: list[list[Instance]] = []
    for launch in launches.values():
        match _result(launch, at_ms):
            case "worked":
                break
            case "in_vain":
                dead.append(launch)
            case "undecided":
                continue
    deaths = [each for launch in dead for each in launch]
    last_ms = max((each.since_ms for each in deaths), default=0)
    if not deaths or at_ms - last_ms >= FORGET_MS:
        return LaunchesInVain()
    if not leads_to_nothing(len(dead), len(deaths)):
        return LaunchesInVain(len(dead), len(deaths))
    listed_all = len(deaths) < DEATHS_LISTED_MAX
    count = len(dead) if listed_all else max(len(dead), len(deaths) // DEATHS_OF_A_LAUNCH)
    # The list is bounded, and so is the count. What it spans grows with each wait, so waits continue to grow.
    spanned_ms = last_ms - min(each.since_ms for each in deaths)
    wait_ms = max(BACKOFF_MS << (count - TOLERATED - 1), spanned_ms // 2)
    return LaunchesInVain(len(dead), len(deaths), last_ms + min(wait_ms, BACKOFF_MS_MAX))


def _result(launch: Sequence[Instance], at_ms: int) -> Literal["worked", "in_vain", "undecided"]:
    if any(
        each.jobs_done or (each.state == "running" and at_ms - each.since_ms >= SURVIVED_MS)
        for each in launch
    ):
        return "worked"
    dead = all(
        each.state == "exited" and each.jobs_done == 0 and at_ms - each.since_ms < OLD_MS for each in launch
    )
    return "in_vain" if dead else "undecided"


def _number(instance_id: str) -> int:
    number = instance_id.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0
