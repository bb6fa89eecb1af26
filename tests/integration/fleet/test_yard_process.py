"""The yard as a process: what it promised holds across its own death, and no worker outlives it."""

from __future__ import annotations

import pytest
from anchorwatch.bus.jetstream import JetStreamBus
from anchorwatch.core.errors import Unavailable
from anchorwatch_fleet import cli
from anchorwatch_fleet.client import YardRefused

from tests.integration.fleet.yards import YardProcess, until
from tests.support.nats_server import NatsServer


async def no_workers(yard: YardProcess) -> bool:
    return not yard.worker_pids()


@pytest.mark.parametrize("point", ["die_before_spawn", "die_after_spawn"])
async def test_yard_killed_in_the_middle_of_a_launch_launches_once(
    yard: YardProcess, bus: JetStreamBus, point: str
) -> None:
    await yard.client.ask("misbehave", mode=point, verb="launch")
    with pytest.raises(Unavailable):
        await yard.client.ask("launch", 2.0, effect_key="key", count=2, priority="normal")
    yard.wait_ended()
    await until(lambda: no_workers(yard), "its workers are gone with it")

    await yard.start()
    became = await yard.client.ask("effect", effect_key="key")
    assert became["state"] == ("not_done" if point == "die_before_spawn" else "done")
    instances = await yard.launch(2, "key")
    assert await yard.launch(2, "key") == instances

    async def all_born() -> bool:
        return await cli.launches(bus) == {"key": dict.fromkeys(instances, 1)}

    await until(all_born, "each was launched exactly once")


async def test_workers_never_outlive_a_killed_yard_even_when_hung(
    yard: YardProcess, bus: JetStreamBus
) -> None:
    running, hanging, _loading = await yard.launch(3)
    await yard.until_state(running, "running")
    await cli.kill(bus, hanging, "hang")
    assert len(yard.worker_pids()) == 3

    yard.kill9()

    await until(lambda: no_workers(yard), "no worker is left", patience_s=5)
    await yard.start()
    states = {each.id: (each.state, each.last_error) for each in await yard.client.instances()}
    assert set(states.values()) == {("exited", "the yard ended, and its workers with it")}
    shown = await cli.status(bus)
    # What they had done since the book was last written, nobody heard: unknown, and not zero.
    assert [each["jobs_done"] for each in shown["instances"]] == [None] * 3
    assert shown["text"].count(" unknown jobs done") == 3
    facts = shown["facts"]
    assert (facts["workers_dead"], facts["demand_active"], facts["demand_queued"]) == (True, False, False)


async def test_orderly_end_leaves_no_process_or_file(yard: YardProcess) -> None:
    running, _loading = await yard.launch(2)
    await yard.until_state(running, "running")

    assert yard.stop() == 0

    assert yard.worker_pids() == []
    await yard.start()
    assert [each.last_error for each in await yard.client.instances()] == [
        "the yard was stopped, and its workers with it"
    ] * 2


async def test_second_yard_on_the_same_directory_does_not_start(
    yard: YardProcess, server: NatsServer, bus: JetStreamBus
) -> None:
    # Under the name of the first it would end that one.
    second = YardProcess(server, yard.data_dir, bus, instance_name="yard-2")

    second.spawn()

    assert second.wait_ended() != 0
    assert "another yard uses" in second.log
    assert await yard.client.instances() == []


async def test_stopping_and_killing_by_request(yard: YardProcess) -> None:
    stopped, killed = await yard.launch(2)

    answer = await yard.client.ask("stop", 10.0, effect_key="s", id=stopped)
    assert (answer["was_live"], answer["state"]) == (True, "stopped")
    await yard.client.ask("kill", 10.0, id=killed)
    assert (await yard.instance(killed)).state == "exited"
    assert yard.worker_pids() == []


@pytest.mark.parametrize(
    ("verb", "args", "code"),
    [
        ("launch", {"effect_key": "k", "count": 0, "priority": "normal"}, "bad_input"),
        ("launch", {"effect_key": "k", "count": 1}, "bad_input"),
        ("launch", {"effect_key": "k", "count": 2, "priority": "normal", "limit": 1}, "refused"),
        ("stop", {"effect_key": "k", "id": "w-9"}, "not_found"),
        ("logs", {"id": "w-9"}, "not_found"),
        ("misbehave", {"mode": "rude"}, "bad_input"),
    ],
)
async def test_impossible_request_is_answered_with_the_reason(
    yard: YardProcess, verb: str, args: dict[str, object], code: str
) -> None:
    with pytest.raises(YardRefused) as caught:
        await yard.client.ask(verb, **args)

    assert caught.value.yard_code == code
