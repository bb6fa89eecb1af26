"""Emergencies of the real fleet: one that nobody ends stays open when its sources fall silent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from anchorwatch.bus.port import Bus
from anchorwatch.core.anchor import Anchor
from anchorwatch_fleet import cli
from anchorwatch_fleet.client import YardClient

from tests.e2e.meshes import NO_FIRST_START, LiveMesh, Session, facts_when, kill_workers, launch, running

ALWAYS = 1_000


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveMesh]:
    with running(tmp_path_factory.mktemp("emergency"), *NO_FIRST_START) as started:
        yield started


@pytest.fixture
async def bus(mesh: LiveMesh) -> AsyncIterator[Bus]:
    async with mesh.bus() as connected:
        yield connected


async def turn_after(session: Session, text: str) -> Anchor:
    """The anchor after the turn that consumed a message."""
    history = await session.rest_after(session.say(text))
    return history.anchors[-1].anchor


async def test_silent_yard_does_not_end_an_emergency(mesh: LiveMesh, bus: Bus) -> None:
    yard = YardClient(bus)
    kill_workers(await launch(bus, "first", 1))
    await cli.add_jobs(bus, 59, size="small", batch="emergency")
    await facts_when(bus, workers_dead=True, tasks_queued=59)
    await yard.ask("misbehave", 5.0, mode="error", verb="launch", times=ALWAYS)
    fleet = Session(mesh, bus, "alarmed")
    fleet.make()

    failed = await turn_after(fleet, "look")
    assert failed.last_run_outcome == "unresolved"
    assert failed.emergency is not None
    assert failed.emergency.kind == "workers-dead"

    await yard.ask("misbehave", 5.0, mode="silent", verb="list", times=ALWAYS)
    blind = await turn_after(fleet, "look again")
    assert (blind.facts["workers_dead"], blind.last_run_outcome) == (None, "unresolved")
    assert blind.runs_without_progress > failed.runs_without_progress
    assert blind.emergency is not None
    assert blind.last_run_reason.startswith(
        f"all workers are dead while 59 tasks are queued, as last seen at {blind.emergency.last_seen_at}"
    )
    assert blind.emergency.since == failed.emergency.since
    for words in (("sessions", "list"), ("show", "alarmed"), ("status",)):
        assert "all workers are dead while 59 tasks are queued" in mesh.run(*words)

    await yard.ask("misbehave", 5.0, mode="none")
    await turn_after(fleet, "look once more")
    await facts_when(bus, workers_dead=False)
    well = await turn_after(fleet, "is it over?")
    assert well.emergency is None
