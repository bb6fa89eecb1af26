from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from anchorwatch.core.errors import Conflict, NotFound, Refused
from anchorwatch_fleet.instances import Report
from anchorwatch_fleet.yard.book import Book, Effect
from anchorwatch_fleet.yard.roster import HUNG_AFTER_S, LOADING_S_MAX, Roster
from anchorwatch_fleet.yard.yard import Hook, Yard, no_hook

from tests.unit.fleet.fake_processes import FakeProcesses


class Crash(Exception):
    """The yard was killed here."""


class World:
    """A yard that can die and come back on the same directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.processes = FakeProcesses()
        self.now_ms = 1_000_000
        self.crash_at = ""
        self._open()

    def _open(self) -> None:
        self.book = Book(self.directory / "yard.sqlite3")
        self.roster = Roster(self.book, lambda: self.now_ms)
        hook: Hook = self.hook if self.crash_at else no_hook
        self.yard = Yard(self.book, self.roster, self.processes, hook=hook)
        self.yard.recover()

    async def hook(self, point: str, _effect: Effect) -> None:
        if point == self.crash_at:
            raise Crash

    def restart(self, crash_at: str = "") -> None:
        self.processes.yard_dies()
        self.book.close()
        self.crash_at = crash_at
        self._open()

    def states(self) -> dict[str, str]:
        return {each.id: each.state for each in self.roster.listed()}

    def runs(self, instance_id: str, epoch: int = 1) -> None:
        self.roster.hear(Report(instance_id, epoch, "running", rate_ph=100.0))


@contextmanager
def opened(directory: Path) -> Iterator[World]:
    world = World(directory)
    try:
        yield world
    finally:
        world.book.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with opened(tmp_path) as made:
        yield made


async def test_same_key_launches_once_also_across_a_restart(world: World) -> None:
    first = await world.yard.launch("k", 2, "normal", 6)
    again = await world.yard.launch("k", 2, "normal", 6)
    world.restart()
    later = await world.yard.launch("k", 2, "normal", 6)

    assert first["instances"] == again["instances"] == later["instances"] == ["w-1", "w-2"]
    assert (first["replayed"], again["replayed"], later["replayed"]) == (False, True, True)
    assert world.yard.launches() == {"k": {"w-1": 1, "w-2": 1}}
    assert world.states() == {"w-1": "exited", "w-2": "exited"}


async def test_key_of_another_operation_is_refused(world: World) -> None:
    await world.yard.launch("k", 1, "normal", 6)

    with pytest.raises(Conflict, match="belongs to launch"):
        await world.yard.launch("k", 2, "normal", 6)
    with pytest.raises(Conflict, match="belongs to launch"):
        await world.yard.stop("k", "w-1")
    with pytest.raises(Conflict, match="belongs to launch"):
        await world.yard.restart("k", "w-1")


async def test_launch_above_the_limit_is_refused_and_leaves_no_trace(world: World) -> None:
    await world.yard.launch("k1", 2, "normal", 3)

    with pytest.raises(Refused, match="2 live and 2 more"):
        await world.yard.launch("k2", 2, "normal", 3)

    assert world.yard.what_became_of("k2") == {"state": "not_done"}
    assert (await world.yard.launch("k2", 1, "emergency", 3))["instances"] == ["w-3"]
    assert world.roster.get("w-3").priority == "emergency"


async def test_yard_dead_before_a_launch_launches_on_the_repeated_call(world: World) -> None:
    world.restart("before_spawn")
    with pytest.raises(Crash):
        await world.yard.launch("k", 2, "normal", 6)
    world.restart()

    assert world.yard.what_became_of("k")["state"] == "not_done"
    assert (await world.yard.launch("k", 2, "normal", 6))["instances"] == ["w-1", "w-2"]
    assert world.yard.launches() == {"k": {"w-1": 1, "w-2": 1}}


async def test_yard_dead_after_a_launch_does_not_launch_again(world: World) -> None:
    world.restart("after_spawn")
    with pytest.raises(Crash):
        await world.yard.launch("k", 2, "normal", 6)
    world.restart()

    assert world.yard.what_became_of("k")["state"] == "done"
    assert (await world.yard.launch("k", 2, "normal", 6))["replayed"] is True
    assert world.yard.launches() == {"k": {"w-1": 1, "w-2": 1}}
    assert world.states() == {"w-1": "exited", "w-2": "exited"}


async def test_launch_cut_off_half_way_is_completed_exactly(world: World) -> None:
    world.restart("after_spawn")
    with pytest.raises(Crash):
        await world.yard.launch("k", 2, "normal", 6)
    # As if the yard had died between the two: the second never said that it was there.
    del world.processes.born[1]
    world.restart()

    assert world.yard.what_became_of("k")["state"] == "unknown"
    await world.yard.launch("k", 2, "normal", 6)

    assert world.yard.launches() == {"k": {"w-1": 1, "w-2": 1}}
    assert world.states() == {"w-1": "exited", "w-2": "loading"}


async def test_results_of_workers_of_a_dead_yard_are_unknown_not_zero(world: World) -> None:
    await world.yard.launch("k", 3, "normal", 6)
    world.roster.hear(Report("w-1", 1, "running", jobs_done=7))
    world.roster.hear(Report("w-2", 1, "running", jobs_done=0))
    world.roster.end("w-2", "exited", "killed by SIGKILL")

    world.restart()

    done = {each.id: each.jobs_done for each in world.roster.listed()}
    assert done == {"w-1": None, "w-2": 0, "w-3": None}


async def test_instance_refused_by_the_machine_is_listed_with_reason(world: World) -> None:
    world.processes.refuses = 1

    await world.yard.launch("k", 2, "normal", 6)

    assert world.states() == {"w-1": "exited", "w-2": "loading"}
    assert world.roster.get("w-1").last_error == "could not be started: no more processes"


async def test_stopped_instance_is_not_dead_and_a_second_stop_is_void(
    world: World,
) -> None:
    await world.yard.launch("k", 1, "normal", 6)

    assert await world.yard.stop("s1", "w-1") == {
        "instances": ["w-1"],
        "was_live": True,
        "state": "stopped",
        "replayed": False,
    }
    assert (await world.yard.stop("s1", "w-1"))["replayed"] is True
    assert (await world.yard.stop("s2", "w-1"))["was_live"] is False
    assert world.states() == {"w-1": "stopped"}


async def test_instance_that_ignores_the_stop_is_killed(world: World) -> None:
    await world.yard.launch("k", 1, "normal", 6)
    world.processes.deaf.add("w-1")

    await world.yard.stop("s", "w-1")

    assert world.processes.sent == [("w-1", "SIGTERM"), ("w-1", "SIGKILL")]
    assert world.states() == {"w-1": "stopped"}


async def test_stop_interrupted_by_yard_death_counts_as_done(
    world: World,
) -> None:
    await world.yard.launch("k", 1, "normal", 6)
    world.book.note(Effect("s", "stop", {"id": "w-1"}, targets=(("w-1", 1),)))
    world.restart()

    assert world.states() == {"w-1": "stopped"}
    assert world.yard.what_became_of("s")["state"] == "done"


async def test_restart_gives_the_instance_a_new_process_under_its_id(world: World) -> None:
    await world.yard.launch("k", 1, "normal", 6)
    world.runs("w-1")

    await world.yard.restart("r", "w-1")

    instance = world.roster.get("w-1")
    assert (instance.state, instance.epoch, instance.pid) == ("loading", 2, 1001)
    assert instance.rate_ph == 100.0
    assert world.yard.what_became_of("r")["state"] == "done"


async def test_restart_repeats_after_its_key_was_used(world: World) -> None:
    await world.yard.launch("k", 1, "normal", 6)

    await world.yard.restart("r", "w-1")
    await world.yard.restart("r", "w-1")

    assert world.yard.launches()["r"] == {"w-1": 2}


@pytest.mark.parametrize(("crash_at", "state"), [("before_spawn", "not_done"), ("after_spawn", "done")])
async def test_restart_interrupted_by_yard_death_reports_its_state(
    world: World, crash_at: str, state: str
) -> None:
    await world.yard.launch("k", 1, "normal", 6)
    world.crash_at = crash_at
    world.yard = Yard(world.book, world.roster, world.processes, hook=world.hook)
    with pytest.raises(Crash):
        await world.yard.restart("r", "w-1")
    world.restart()

    assert world.yard.what_became_of("r")["state"] == state
    assert world.states() == {"w-1": "exited"}


async def test_instance_that_has_ended_is_not_restarted(world: World) -> None:
    await world.yard.launch("k", 1, "normal", 6)
    world.processes.exit("w-1", 0)

    with pytest.raises(Refused, match="has ended"):
        await world.yard.restart("r", "w-1")


async def test_unknown_instance_is_named_with_those_that_live(world: World) -> None:
    await world.yard.launch("k", 1, "normal", 6)

    for attempt in (
        world.yard.stop("s", "w-9"),
        world.yard.restart("r", "w-9"),
        world.yard.kill("w-9", "kill"),
    ):
        with pytest.raises(NotFound, match="live: w-1"):
            await attempt


@pytest.mark.parametrize(
    ("code", "status", "number", "error"),
    [
        (-9, None, 9, "killed by SIGKILL"),
        (-99, None, 99, "killed by signal 99"),
        (0, 0, None, "exit status 0"),
        (70, 70, None, "exit status 70: w-1 line 3"),
    ],
)
async def test_how_a_worker_ended_is_kept(
    world: World, code: int, status: int | None, number: int | None, error: str
) -> None:
    await world.yard.launch("k", 1, "normal", 6)

    world.processes.exit("w-1", code)

    instance = world.roster.get("w-1")
    assert (instance.state, instance.exit_status, instance.exit_signal) == ("exited", status, number)
    assert instance.last_error == error
    assert instance.pid is None


async def test_silent_worker_is_hung_and_runs_again_when_it_reports(world: World) -> None:
    await world.yard.launch("k", 1, "normal", 6)
    world.runs("w-1")
    world.now_ms += round(HUNG_AFTER_S * 1000) + 1

    world.roster.mark_hung(deaf_until_ms=0)
    assert world.states() == {"w-1": "hung"}

    world.runs("w-1")
    assert world.states() == {"w-1": "running"}


async def test_worker_is_not_silent_while_the_yard_could_not_hear(world: World) -> None:
    await world.yard.launch("k", 1, "normal", 6)
    world.runs("w-1")
    world.now_ms += 60_000

    world.roster.mark_hung(deaf_until_ms=world.now_ms)

    assert world.states() == {"w-1": "running"}


async def test_worker_load_time_may_exceed_its_silence_limit(world: World) -> None:
    await world.yard.launch("k", 1, "normal", 6)
    world.now_ms += round(HUNG_AFTER_S * 1000) + 1
    world.roster.mark_hung(deaf_until_ms=0)
    assert world.states() == {"w-1": "loading"}

    world.now_ms += round(LOADING_S_MAX * 1000)
    world.roster.mark_hung(deaf_until_ms=0)
    assert world.states() == {"w-1": "hung"}


async def test_report_of_a_former_process_or_dead_instance_is_ignored(world: World) -> None:
    await world.yard.launch("k", 2, "normal", 6)
    await world.yard.restart("r", "w-1")
    world.processes.exit("w-2", -9)

    world.runs("w-1", epoch=1)
    world.runs("w-2")
    world.runs("w-77")

    assert world.states() == {"w-1": "loading", "w-2": "exited"}


async def test_yard_shutdown_ends_its_workers_with_the_reason(world: World) -> None:
    await world.yard.launch("k", 2, "normal", 6)

    await world.yard.shutdown()

    assert world.states() == {"w-1": "exited", "w-2": "exited"}
    assert world.roster.get("w-1").last_error == "the yard was stopped, and its workers with it"


async def test_hang_stops_the_worker_process_with_a_signal(world: World) -> None:
    await world.yard.launch("k", 1, "normal", 6)

    await world.yard.kill("w-1", "hang")

    assert world.processes.sent == [("w-1", "SIGSTOP")]
    assert world.states() == {"w-1": "loading"}


async def test_live_instances_are_all_listed_with_latest_ended_ones(world: World) -> None:
    for number in range(30):
        await world.yard.launch(f"k{number}", 1, "normal", None)
        world.now_ms += 1
    for number in range(1, 26):
        world.processes.exit(f"w-{number}", -9)
        world.now_ms += 1

    assert list(world.states()) == [f"w-{number}" for number in range(6, 31)]
