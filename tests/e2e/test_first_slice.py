"""What a user does first, on a mesh as `anchorwatch up` makes it: an event comes in, a worker process comes out."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from anchorwatch.bus.port import Bus
from anchorwatch.core.records import Kind
from anchorwatch.testing.live import until
from anchorwatch.testing.receiver import Receiver
from anchorwatch_fleet import SESSION, cli
from anchorwatch_fleet.client import YardClient
from anchorwatch_fleet.yard.births import Birth, read_births

from tests.e2e.meshes import LiveMesh, Session, facts_when, kill_workers, running
from tests.support.receiver import SECRET
from tests.support.waiting import is_running

DEAD = "aw.event.default.fleet.instance.dead"
TASKS = 59


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver(SECRET) as listening:
        yield listening


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[LiveMesh]:
    root = tmp_path_factory.mktemp("first")
    routes = root / "notify.toml"
    routes.write_text(
        f'[[channel]]\nname = "hook"\nkind = "webhook"\nurl = "{receiver.url}"\nsecret = "{SECRET}"\non = ["turn_ended"]\n'
    )
    with running(root, settings={"ANCHORWATCH_NOTIFY": str(routes)}) as started:
        yield started


@pytest.fixture
async def bus(mesh: LiveMesh) -> AsyncIterator[Bus]:
    async with mesh.bus() as connected:
        yield connected


@pytest.fixture
def fleet(mesh: LiveMesh, bus: Bus) -> Session:
    return Session(mesh, bus, SESSION)


async def born_under(file: Path, effect_key: str) -> list[Birth]:
    """The workers that say that they were started under a key, once one does."""

    async def look() -> list[Birth]:
        return [each for each in read_births(file) if each.effect_key == effect_key]

    return await until(look, f"a worker was started under {effect_key}")


def births(mesh: LiveMesh) -> Path:
    return mesh.data.root / "yard" / "births.jsonl"


async def test_plain_client_event_becomes_input_turn_anchor_and_worker(
    mesh: LiveMesh, bus: Bus, fleet: Session
) -> None:
    # The first turn runs at once, and keeps one worker ready.
    await fleet.ended(1)
    await facts_when(bus, workers_alive=1)
    kill_workers(await YardClient(bus).instances())
    await facts_when(bus, instances_live=0)
    before = await fleet.history()
    runs = len(before.of_kind(Kind.TURN_ENDED))

    async with mesh.plain() as publisher:
        await publisher.publish(DEAD, b'{"instance": "w-1", "priority": "P0"}')
        await publisher.flush()

    history = await fleet.ended(runs + 1)
    (event,) = [each for each in history.taken(runs + 1) if each.kind == "event"]
    assert (event.source, event.type, event.priority) == ("fleet", "instance.dead", 0)
    (command,) = [
        each
        for each in history.commands
        if each.call.run == runs + 1 and each.decided.tool == "launch_instances"
    ]
    done = history.outcome_of(command.call)
    assert done is not None
    assert done.outcome.state == "succeeded"

    # The same anchor in the journal and in the KV bucket, read by a client that knows nothing of either.
    async with mesh.plain("cli") as client:
        js = client.jetstream()
        kept = json.loads((await (await js.key_value("anchors")).get("default.fleet")).value or b"")
        report = await js.get_last_msg("JOURNAL_0", "aw.journal.0.default.fleet.p.anchor.change", direct=True)
        assert json.loads(report.data or b"") == kept
    assert (kept["run_id"], kept["run_count"], kept["last_run_outcome"]) == (runs + 1, runs + 1, "success")
    assert kept["status"] == "idle"

    (started,) = await born_under(births(mesh), done.outcome.effect_key)
    assert is_running(started.pid)
    assert os.getsid(started.pid) == os.getsid(mesh.mesh.pid), (
        "a worker outlives executors, and ends with the mesh"
    )


async def test_dead_workers_and_59_queued_tasks_never_lead_to_a_stop(
    mesh: LiveMesh, bus: Bus, fleet: Session
) -> None:
    await facts_when(bus, workers_alive=1)
    jobs = set(await cli.add_jobs(bus, TASKS, size="small", batch="incident"))
    kill_workers(await YardClient(bus).instances())
    facts = await facts_when(bus, workers_dead=True)
    assert (facts["demand_active"], facts["demand_queued"]) == (False, True)
    before = len((await fleet.history()).of_kind(Kind.TURN_ENDED))

    async with mesh.plain() as publisher:
        ack = await publisher.jetstream().publish(DEAD, b'{"instance": "w-2", "priority": "P0"}')
        assert ack.stream == "EVENTS"

    async def all_done() -> bool:
        return jobs <= {each.job_id for each in await cli.results(bus) if each.certificate}

    await until(all_done, "every job has its proof", 60)
    history = await fleet.ended(before + 1)
    mine = [each for each in history.commands if each.call.run > before]
    assert mine[0].decided.tool == "launch_instances"
    assert mine[0].decided.args["launch_priority"] == "emergency"
    assert [each for each in mine if each.decided.tool == "stop_instance"] == []
    assert [each.id for each in await YardClient(bus).instances() if each.state == "stopped"] == []
    ended = history.ended(before + 1)
    assert ended is not None
    assert ended.anchor.last_run_outcome == "success"


async def test_notification_arrives_once_though_the_notifier_is_killed(
    mesh: LiveMesh, fleet: Session, receiver: Receiver
) -> None:
    async def all_told() -> bool:
        """Whether every turn's end arrived, and the journal says so too."""
        history = await fleet.history()
        ends = {each.sequence for each in history.of_kind(Kind.TURN_ENDED)}
        accepted = [each for each in receiver.arrivals if each.accepted]
        sent = sorted(each.delivery_id for each in history.sent if each.state == "sent")
        return ends == {each.record for each in accepted} and sent == sorted(
            {each.webhook_id for each in accepted}
        )

    async def holding() -> bool:
        return receiver.holding

    await fleet.rest_after(0)
    await until(all_told, "what was told before is recorded")
    receiver.hold_next()
    mesh.run("trigger", SESSION)
    await until(holding, "a notification is on its way")
    held = receiver.arrivals[-1]
    mesh.kill("notifier")
    receiver.release()
    await until(all_told, "every turn's end arrived")

    arrivals = receiver.arrivals
    again = [each for each in arrivals if each.webhook_id == held.webhook_id]
    assert [each.accepted for each in again] == [False, True]
    assert len({each.body_sha256 for each in again}) == 1
    accepted = [each.webhook_id for each in arrivals if each.accepted]
    assert len(accepted) == len(set(accepted))
    assert all(each.signed for each in arrivals)
