"""What was measured, as data and as text: ratios first, since they travel; absolute figures and the machine after."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any

from tests.bench.load import Latency
from tests.bench.measure import Counts, History, Recovery, Round
from tests.bench.scene import Usage

OF_LAZY_FLOOR_MIN = 0.17
OF_FSYNC_FLOOR_P50_MAX = 2.6
P99_OF_P50_MAX = 2.0
BYTES_A_TURN_MAX = 3 * 1024
FLAT_MAX = 1.3
RECOVERY_S_MAX = 0.6
# Streams that keep one message for each key.
VIEWS = ("KV_", "OBJ_")
OF_RESTATE_MIN, OF_RESTATE_P50_MAX = 1.2, 1.0
FLOOR_LAZY, FLOOR_FSYNC, MESH, MESH_LAZY, RESTATE = (
    "floor, lazy fsync",
    "floor, fsync",
    "mesh, fsync",
    "mesh, lazy fsync",
    "Restate, fsync",
)


@dataclass(frozen=True)
class Speed:
    """All rounds of one kind as one."""

    turns_a_second: float
    alone: Latency
    many: Latency
    turns: int
    usage: Usage
    fsync_ms: float

    @classmethod
    def of(cls, rounds: Sequence[Round]) -> Speed:
        return cls(
            statistics.median(each.many.turns_a_second for each in rounds),
            Latency.of([took for each in rounds for took in each.alone]),
            Latency.of([took for each in rounds for took in each.many.took]),
            sum(each.many.turns for each in rounds),
            reduce(Usage.plus, (each.many.usage for each in rounds)),
            statistics.median(each.fsync_ms for each in rounds),
        )

    @property
    def cpu_ms_a_turn(self) -> dict[str, float]:
        return {who: used / self.turns * 1000 for who, used in self.usage.cpu_s.items()}


@dataclass
class Results:
    """Everything of one run."""

    command: str
    machine: Mapping[str, Any]
    rounds: Mapping[str, Sequence[Round]]
    history: History
    recovery: Recovery
    counts: Mapping[str, Counts]

    @property
    def speeds(self) -> dict[str, Speed]:
        return {name: Speed.of(rounds) for name, rounds in self.rounds.items()}

    def to_json(self) -> dict[str, Any]:
        """Figures without the single turns behind them."""
        return {
            "command": self.command,
            "machine": dict(self.machine),
            "ratios": {name: row.value for name, row in ratios(self).items()},
            "speeds": {
                name: {**asdict(speed), "cpu_ms_a_turn": speed.cpu_ms_a_turn}
                for name, speed in self.speeds.items()
            },
            "bytes_a_turn": bytes_a_turn(self.speeds[MESH]),
            "history": asdict(self.history),
            "recovery": asdict(self.recovery),
            "counts": {name: asdict(counts) for name, counts in self.counts.items()},
        }


@dataclass(frozen=True)
class Ratio:
    """A figure beside what it should be."""

    label: str
    value: float
    good: bool = True
    bar: str = ""


def ratios(results: Results) -> dict[str, Ratio]:
    """The figures that can be compared with those of another machine."""
    mesh, recovery, history = results.speeds[MESH], results.recovery, results.history
    turns, loads = sorted(history.turn_ms), sorted(history.load_ms)
    aging = history.turn_ms[turns[-1]] / history.turn_ms[turns[0]]
    loading = history.load_ms[loads[-1]] / history.load_ms[loads[0]]
    restarting = history.restarted_ms[loads[-1]] / history.restarted_ms[loads[0]]
    of_lazy = _of(results, FLOOR_LAZY, lambda each: each.many.turns_a_second)
    of_fsync = _of(results, FLOOR_FSYNC, lambda each: each.many.turns_a_second)
    p50 = _of(results, FLOOR_FSYNC, lambda each: statistics.median(each.alone))
    p99 = mesh.alone.p99_ms / mesh.alone.p50_ms
    beyond = statistics.median(recovery.beyond_start_s)
    return {
        **_beside_restate(results),
        "turns_of_lazy_floor": _at_least("turns/s, of the lazy floor's", of_lazy, OF_LAZY_FLOOR_MIN),
        "turns_of_fsync_floor": Ratio("turns/s, of the fsync floor's", of_fsync),
        "p50_of_fsync_floor": _at_most("p50 alone, of the fsync floor's", p50, OF_FSYNC_FLOOR_P50_MAX),
        "p99_of_p50": _at_most("p99 alone, of p50", p99, P99_OF_P50_MAX),
        "turn_by_age": _at_most(f"turn {turns[-1]} of one session, of turn {turns[0]}", aging, FLAT_MAX),
        "restart_by_age": _at_most(
            f"restarted planner's turn {loads[-1]}, of turn {loads[0]}", restarting, FLAT_MAX
        ),
        "load_by_age": _at_most(f"loading at turn {loads[-1]}, of turn {loads[0]}", loading, FLAT_MAX),
        "bytes_a_turn": _at_most("bytes a turn on disk", bytes_a_turn(mesh), BYTES_A_TURN_MAX),
        "recovery_s": _at_most("recovery beyond process start, s", beyond, RECOVERY_S_MAX),
        "effects_twice": _at_most("effects done twice", results.counts[MESH].effects_twice, 0),
    }


def _beside_restate(results: Results) -> dict[str, Ratio]:
    if RESTATE not in results.rounds:
        return {}
    turns = _of(results, RESTATE, lambda each: each.many.turns_a_second)
    p50 = _of(results, RESTATE, lambda each: statistics.median(each.alone))
    return {
        "turns_of_restate": _at_least("turns/s, of Restate's", turns, OF_RESTATE_MIN),
        "p50_of_restate": _at_most("p50 alone, of Restate's", p50, OF_RESTATE_P50_MAX),
    }


def _of(results: Results, floor: str, figure: Callable[[Round], float]) -> float:
    """The mesh's figure of that floor's in the same round; the median of all rounds."""
    pairs = zip(results.rounds[MESH], results.rounds[floor], strict=True)
    return statistics.median(figure(mesh) / figure(beside) for mesh, beside in pairs)


def _at_least(label: str, value: float, least: float) -> Ratio:
    return Ratio(label, value, value >= least, f"≥ {least:g}")


def _at_most(label: str, value: float, most: float) -> Ratio:
    return Ratio(label, value, value <= most, f"≤ {most:g}")


def bytes_a_turn(speed: Speed) -> float:
    """Bytes on disk of what stays, once the blocks that it stands in are full. Views keep one message a session."""
    usage = speed.usage
    growing = {name: count for name, count in usage.bytes.items() if not name.startswith(VIEWS)}
    return sum(count * usage.packed[name] for name, count in growing.items()) / speed.turns


def text(results: Results) -> str:
    """The report."""
    rows = [
        f"{row.label:<38}{row.value:>10.3g}   {row.bar:<8}{'' if row.good else 'NOT MET'}".rstrip()
        for row in ratios(results).values()
    ]
    parts = (
        ["RATIOS (medians over rounds, each to the floor of its round)", *rows],
        _speeds(results),
        _costs(results),
        _single_session(results),
        [
            *(f"{name}: {_counted(counts)}" for name, counts in results.counts.items()),
            "machine: " + ", ".join(f"{name} {value}" for name, value in results.machine.items()),
            f"command: {results.command}",
        ],
    )
    return "\n\n".join("\n".join(part) for part in parts)


def _speeds(results: Results) -> list[str]:
    names = ("turns/s", "p50 alone", "p99 alone", "p50 of many", "p99 of many", "CPU ms/turn", "fsync ms")
    rows = [
        f"{f'medians of {len(results.rounds[MESH])} rounds':<22}" + "".join(f"{name:>12}" for name in names)
    ]
    for name, speed in results.speeds.items():
        cpu = sum(used for who, used in speed.cpu_ms_a_turn.items() if who != "bench")
        rows.append(
            f"{name:<22}{speed.turns_a_second:>12.0f}{speed.alone.p50_ms:>12.2f}{speed.alone.p99_ms:>12.2f}"
            f"{speed.many.p50_ms:>12.1f}{speed.many.p99_ms:>12.1f}{cpu:>12.2f}{speed.fsync_ms:>12.2f}"
        )
    return rows


def _costs(results: Results) -> list[str]:
    speed = results.speeds[MESH]
    usage, turns = speed.usage, speed.turns
    stored = (f"{name} {count / turns:.2f}" for name, count in usage.messages.items() if count >= turns / 100)
    size = (f"{name} {count / turns:.0f}" for name, count in usage.bytes.items() if count >= turns)
    packed = [f"{name} {share:.2f}" for name, share in usage.packed.items() if share != 1]
    return [
        *(f"CPU ms a turn, {name}: {_cpu(each)}" for name, each in results.speeds.items()),
        f"stored messages a turn: {sum(usage.messages.values()) / turns:.2f}: {', '.join(stored)}",
        *(
            f"messages on the wire a turn, {name}: {_wire(each)}"
            for name, each in results.speeds.items()
            if each.usage.wire
        ),
        f"bytes a turn on disk: {bytes_a_turn(speed):.0f}; stored: {', '.join(size)}",
        f"size of full blocks on disk, of what is stored in them: {', '.join(packed) or 'none was filled'}",
    ]


def _cpu(speed: Speed) -> str:
    return ", ".join(f"{who} {used:.2f}" for who, used in speed.cpu_ms_a_turn.items())


def _wire(speed: Speed) -> str:
    passed = {who.rpartition("-")[0] or who: count / speed.turns for who, count in speed.usage.wire.items()}
    report = (f"{who} {count:.1f}" for who, count in sorted(passed.items()) if who not in ("", "bench"))
    return ", ".join(report)


def _single_session(results: Results) -> list[str]:
    history, recovery = results.history, results.recovery

    def by_turn(figures: Mapping[int, float]) -> str:
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
    return f"{once}; {twice}: {verdict}"
