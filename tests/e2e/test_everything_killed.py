"""kill -9 of every process in the middle of a turn, and `up` again: it goes on where it was, and does nothing twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from anchorwatch.core.records import Kind
from anchorwatch.journal.history import Claim, History
from anchorwatch.testing.live import until
from anchorwatch_fleet import cli
from anchorwatch_fleet.client import YardClient
from anchorwatch_fleet.yard.births import read_births

from tests.e2e.meshes import NO_FIRST_START, LiveMesh, Session, running
from tests.support.waiting import is_running

JOBS = 20
NOTES = 5
MORE = {"ANCHORWATCH_PROBE_INTERVAL_S": "1"}


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[LiveMesh]:
    with running(tmp_path / "mesh", *NO_FIRST_START, settings=MORE) as started:
        yield started


async def test_launch_interrupted_by_kills_resumes_and_launches_once(mesh: LiveMesh) -> None:
    births = mesh.data.root / "yard" / "births.jsonl"
    async with mesh.bus() as bus:
        session = Session(mesh, bus, "phoenix")
        session.make(subscriptions=("fleet.>",))
        await session.ended(1)
        # The yard does what the agent asks for, and says nothing: the claim stays open, and the workers are there.
        await YardClient(bus).ask("misbehave", mode="timeout_after", verb="launch", times=1)
        jobs = set(await cli.add_jobs(bus, JOBS, size="small", batch="phoenix"))
        claim = await launch_claim(session)
        await until_born(births)
        async with mesh.plain() as publisher:
            for number in range(NOTES):
                headers = {"Nats-Msg-Id": f"note-{number}"}
                await publisher.jetstream().publish("aw.event.default.fleet.note", b"{}", headers=headers)
        before = await session.history()
        assert before.anchors[-1].anchor.status == "active"
        assert before.outcome_of(claim.call) is None
        workers = [each.pid for each in read_births(births)]

        killed = mesh.kill_everything()

    assert set(workers) <= set(killed)
    assert not any(map(is_running, killed))

    mesh.start()
    async with mesh.bus() as bus:
        session = Session(mesh, bus, "phoenix")

        async def all_done() -> bool:
            return jobs <= {each.job_id for each in await cli.results(bus) if each.certificate}

        await until(all_done, "every job has its proof", 60)
        history = await session.rest_after(before.last_sequence)
        born = await cli.launches(bus)

    assert history.anchors[: len(before.anchors)] == before.anchors, "what was recorded stands"
    assert_it_went_on(history, claim)
    assert all(count == 1 for starts in born.values() for count in starts.values()), born
    keys = {each.claimed.effect_key for each in history.claims if is_launch(history, each)}
    assert set(born) == keys
    assert len(born[claim.claimed.effect_key]) == 1
    notes = [each.input_id for each in history.inputs if each.type == "note"]
    assert len(notes) == len(set(notes)) == NOTES
    assert_each_input_was_taken_once(history)


def assert_it_went_on(history: History, claim: Claim) -> None:
    """The run that was under way was taken over and ended; run ids have no gap, and each command one outcome."""
    runs = [each.anchor.run_id for each in history.of_kind(Kind.ACQUIRED)]
    assert runs == list(range(1, len(runs) + 1))
    assert [each.anchor.run_id for each in history.of_kind(Kind.TURN_ENDED)] == runs
    generations = [each.anchor.generation for each in history.anchors]
    assert generations == sorted(generations)
    over = [each for each in history.of_kind(Kind.TAKEN_OVER) if each.anchor.run_id == claim.call.run]
    assert over
    again = history.claims_of(claim.call)[1:]
    assert again
    assert {each.claimed.effect_key for each in again} == {claim.claimed.effect_key}
    assert claim.claimed.owner not in [each.claimed.owner for each in again]
    assert Counter(each.outcome.call for each in history.outcomes) == Counter(
        each.call for each in history.commands
    )


def assert_each_input_was_taken_once(history: History) -> None:
    runs = [each.anchor.run_id for each in history.of_kind(Kind.ACQUIRED)]
    taken = Counter(each.sequence for run in runs for each in history.taken(run))
    assert taken == Counter(each.sequence for each in history.inputs)


def is_launch(history: History, claim: Claim) -> bool:
    return any(
        each.call == claim.call and each.decided.tool == "launch_instances" for each in history.commands
    )


async def launch_claim(session: Session) -> Claim:
    """The first claim on a launch, once it is there."""

    async def look() -> Claim | None:
        history = await session.history()
        return next((each for each in history.claims if is_launch(history, each)), None)

    return await until(look, "a launch is claimed", 30)


async def until_born(births: Path) -> None:
    async def look() -> bool:
        return bool(read_births(births))

    await until(look, "a worker says that it is there", 30)
