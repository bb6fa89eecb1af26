"""What was measured, as data and as text: ratios first, since they travel; absolute figures and the machine after."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tests.bench.measure import Counts, History, Recovery, Speed

OF_LAZY_FLOOR_MIN = 0.17
OF_FSYNC_FLOOR_P50_MAX = 2.6
P99_OF_P50_MAX = 2.0
BYTES_A_TURN_MAX = 3 * 1024
FLAT_MAX = 1.3
RECOVERY_S_MAX = 0.6
# Streams that grow with turns; the KV view keeps one message a session.
VIEWS = ("KV_", "OBJ_")


@dataclass
class Results:
    """Everything of one run. Floors are measured before and after."""

    command: str
    machine: dict[str, Any]
    floor_lazy: list[Speed]
    floor_fsync: list[Speed]
    mesh: Speed
    mesh_lazy: Speed | None
    history: History
    recovery: Recovery
    counts: Counts

    def to_json(self) -> dict[str, Any]:
        return {"ratios": {name: row.value for name, row in ratios(self).items()}, **asdict(self)}


@dataclass(frozen=True)
class Ratio:
    """A figure beside what it should be."""

    label: str
    value: float
    good: bool
    bar: str


def _mean(speeds: Sequence[Speed], figure: Callable[[Speed], float]) -> float:
    return statistics.mean(figure(each) for each in speeds)


def _rate(speed: Speed) -> float:
    return speed.many.turns_a_second


def _p50(speed: Speed) -> float:
    return speed.alone.p50_ms


def ratios(results: Results) -> dict[str, Ratio]:
    """The figures that can be compared with those of another machine."""
    mesh, recovery, history = results.mesh, results.recovery, results.history
    of_lazy = _rate(mesh) / _mean(results.floor_lazy, _rate)
    of_fsync = _rate(mesh) / _mean(results.floor_fsync, _rate)
    p50 = _p50(mesh) / _mean(results.floor_fsync, _p50)
    p99 = mesh.alone.p99_ms / mesh.alone.p50_ms
    size = bytes_a_turn(mesh)
    beyond = statistics.median(recovery.beyond_start_s)
    turns, loads = sorted(history.turn_ms), sorted(history.load_ms)
    aging = history.turn_ms[turns[-1]] / history.turn_ms[turns[0]]
    loading = history.load_ms[loads[-1]] / history.load_ms[loads[0]]
    return {
        "turns_of_lazy_floor": _at_least("turns/s, of the lazy floor", of_lazy, OF_LAZY_FLOOR_MIN),
        "turns_of_fsync_floor": Ratio("turns/s, of the fsync floor", of_fsync, good=True, bar=""),
        "p50_of_fsync_floor": _at_most("p50 alone, of the fsync floor's", p50, OF_FSYNC_FLOOR_P50_MAX),
        "p99_of_p50": _at_most("p99 alone, of p50", p99, P99_OF_P50_MAX),
        "turn_by_age": _at_most(f"turn {turns[-1]} of one session, of turn {turns[0]}", aging, FLAT_MAX),
        "load_by_age": _at_most(f"loading at turn {loads[-1]}, of turn {loads[0]}", loading, FLAT_MAX),
        "bytes_a_turn": _at_most("bytes a turn on disk", size, BYTES_A_TURN_MAX),
        "recovery_s": _at_most("recovery beyond process start, s", beyond, RECOVERY_S_MAX),
        "effects_twice": _at_most("effects done twice", results.counts.effects_twice, 0),
    }


def _at_least(label: str, value: float, least: float) -> Ratio:
    return Ratio(label, value, value >= least, f"≥ {least:g}")


def _at_most(label: str, value: float, most: float) -> Ratio:
    return Ratio(label, value, value <= most, f"≤ {most:g}")


def bytes_a_turn(speed: Speed) -> float:
    """Bytes on disk of what stays, once the blocks that it stands in are full. Views keep one message a session."""
    usage = speed.many.usage
    growing = {name: count for name, count in usage.bytes.items() if not name.startswith(VIEWS)}
    return sum(count * usage.packed[name] for name, count in growing.items()) / speed.many.turns


def text(results: Results) -> str:
    """The report."""
    rows = [
        f"{row.label:<38}{row.value:>10.3g}   {row.bar:<8}{'' if row.good else 'NOT MET'}".rstrip()
        for row in ratios(results).values()
    ]
    return "\n".join(
        [
            "RATIOS", *rows, "",
            *_speeds(results), "",
            *_costs(results), "",
            *_single_session(results), "",
            _counted(results.counts),
            "machine: " + ", ".join(f"{name} {value}" for name, value in results.machine.items()),
            f"command: {results.command}",
        ]
    )  # fmt: skip


def _speeds(results: Results) -> list[str]:
    rows = [
        f"{'':<24}{'turns/s':>9}{'p50 alone':>11}{'p99 alone':>11}{'p50 of many':>13}{'CPU ms/turn':>13}{'fsync ms':>12}"
    ]
    floors = [("floor, lazy fsync", each) for each in results.floor_lazy]
    floors += [("floor, fsync", each) for each in results.floor_fsync]
    meshes = [("mesh, fsync", results.mesh)]
    meshes += [("mesh, lazy fsync", results.mesh_lazy)] if results.mesh_lazy else []
    for name, speed in floors + meshes:
        cpu = sum(used for who, used in speed.many.usage.cpu_s.items() if who != "bench")
        rows.append(
            f"{name:<24}{_rate(speed):>9.0f}{speed.alone.p50_ms:>11.2f}{speed.alone.p99_ms:>11.2f}"
            f"{speed.many.latency.p50_ms:>13.1f}{cpu / speed.many.turns * 1000:>13.2f}"
            f"{speed.fsync_ms[0]:>7.2f}{speed.fsync_ms[1]:>5.2f}"
        )
    return rows


def _costs(results: Results) -> list[str]:
    many = results.mesh.many
    usage, turns = many.usage, many.turns
    cpu = (f"{who} {used / turns * 1000:.2f}" for who, used in usage.cpu_s.items())
    stored = (f"{name} {count / turns:.2f}" for name, count in usage.messages.items() if count)
    size = (f"{name} {count / turns:.0f}" for name, count in usage.bytes.items() if count >= turns)
    packed = [f"{name} {share:.2f}" for name, share in usage.packed.items() if share != 1]
    return [
        f"CPU ms a turn: {', '.join(cpu)}",
        f"stored messages (and so fsyncs) a turn: {sum(usage.messages.values()) / turns:.2f}: {', '.join(stored)}",
        f"bytes a turn on disk: {bytes_a_turn(results.mesh):.0f}; stored: {', '.join(size)}",
        f"size of full blocks on disk, of what is stored in them: {', '.join(packed) or 'none was filled'}",
    ]


def _single_session(results: Results) -> list[str]:
    history, recovery = results.history, results.recovery

    def by_turn(figures: dict[int, float]) -> str:
        return ", ".join(f"turn {turn}: {took:.1f} ms" for turn, took in figures.items())

    seconds = (f"{took:.2f} s" for took in recovery.beyond_start_s)
    starts = (f"{took:.2f} s" for took in recovery.process_start_s)
    return [
        f"one session, by age: {by_turn(history.turn_ms)}",
        f"loading it from nothing: {by_turn(history.load_ms)}",
        f"first turn of a planner restarted after kill -9, beyond its start: {by_turn(history.restarted_ms)}",
        f"executor killed after the effect, until done beyond its start: {', '.join(seconds)}",
        f"executor's start: {', '.join(starts)}",
    ]


def _counted(counts: Counts) -> str:
    verdict = "they add up" if counts.add_up else "THEY DO NOT ADD UP"
    once = f"{counts.wakes} wakes, {counts.effects} effects, {counts.deliveries} deliveries"
    twice = f"{counts.effects_twice} effects and {counts.deliveries_twice} deliveries twice"
    return f"counts: {once}; {twice}: {verdict}"
