"""Real workers do real work, and every job ends with one result, whatever dies meanwhile."""

from __future__ import annotations

from collections import Counter

import pytest
from anchorwatch.bus.jetstream import JetStreamBus
from anchorwatch.bus.port import Expect, Message
from anchorwatch_fleet import cli
from anchorwatch_fleet.jobs import MIXED, Result, decode_job, encode_result, make_job, prove
from anchorwatch_fleet.subjects import JOB, JOBS, RESULT

from tests.integration.fleet.yards import YardProcess, until
from tests.support.nats_server import NatsServer


async def all_done(bus: JetStreamBus) -> None:
    """Wait until no job is queued: as long as it takes, while ever more of them are done."""
    left: int | None = None
    while left != 0:
        before = left

        async def fewer(before: int | None = before) -> list[int]:
            queued = (await cli.status(bus))["facts"]["tasks_queued"]
            return [queued] if before is None or queued < before else []

        [left] = await until(fewer, "one more job is done")


async def check_one_verified_result_each(
    bus: JetStreamBus, job_ids: list[str], size: str = MIXED
) -> list[Result]:
    results = await cli.results(bus)
    assert Counter(result.job_id for result in results) == Counter(job_ids)
    assert all(result.proves(make_job(result.job_id, size).prime) for result in results)
    return results


async def test_launched_fleet_loads_runs_and_proves_every_job_once(
    yard: YardProcess, bus: JetStreamBus
) -> None:
    job_ids = await cli.add_jobs(bus, 20)
    instances = await yard.launch(3)

    seen = await cli.status(bus)
    assert (seen["facts"]["workers_loading"], seen["facts"]["tasks_queued"]) == (3, 20)
    for each in instances:
        running = await yard.until_state(each, "running")
        assert running.rate_ph is not None
    await all_done(bus)

    results = await check_one_verified_result_each(bus, job_ids)
    assert {result.instance for result in results} <= set(instances)

    async def all_counted() -> bool:
        return sum(each.jobs_done or 0 for each in await yard.client.instances()) == 20

    await until(all_counted, "the workers' own counts add up")
    seen = await cli.status(bus)
    assert (seen["facts"]["jobs_done"], seen["facts"]["demand_active"], seen["facts"]["demand_queued"]) == (
        20,
        True,
        False,
    )
    assert any(
        "done in" in line
        for line in (await yard.client.ask("logs", id=results[0].instance, lines=50))["lines"]
    )


async def test_jobs_of_a_worker_that_is_killed_are_done_by_another(
    yard: YardProcess, bus: JetStreamBus
) -> None:
    first, second = await yard.launch(2)
    await yard.until_state(first, "running")
    job_ids = await cli.add_jobs(bus, 12, "large")

    async def has_work() -> bool:
        return (await yard.instance(first)).job is not None

    await until(has_work, "the first worker has a job in hand")
    killed = await cli.kill(bus, first)
    assert killed["state"] == "exited"
    await all_done(bus)

    await check_one_verified_result_each(bus, job_ids, "large")
    dead = await yard.instance(first)
    assert (dead.exit_signal, dead.last_error) == (9, "killed by SIGKILL")
    assert (await yard.instance(second)).state == "running"


async def test_jobs_that_kill_or_hang_their_worker_complete_in_the_end(
    yard: YardProcess, bus: JetStreamBus
) -> None:
    await yard.launch(3)
    [dies] = await cli.add_jobs(bus, 1, "small", "die")
    [hangs] = await cli.add_jobs(bus, 1, "small", "hang")

    await all_done(bus)

    await check_one_verified_result_each(bus, [dies, hangs], "small")

    async def seen() -> bool:
        return sorted(each.state for each in await yard.client.instances()) == ["exited", "hung", "running"]

    await until(seen, "one died, one hangs, one runs")
    hung = next(each for each in await yard.client.instances() if each.state == "hung")
    assert hung.last_error.startswith("silent for")
    await yard.client.ask("restart", 10.0, effect_key="r", id=hung.id)
    assert (await yard.until_state(hung.id, "running")).epoch == 2


async def test_server_may_be_killed_in_the_middle_of_the_work(
    yard: YardProcess, bus: JetStreamBus, server: NatsServer
) -> None:
    await yard.launch(2)
    job_ids = await cli.add_jobs(bus, 16)

    async def begun() -> bool:
        return bool((await cli.status(bus))["facts"]["jobs_done"])

    await until(begun, "the first job is done")
    server.restart()
    await all_done(bus)

    await check_one_verified_result_each(bus, job_ids)
    assert [each.state for each in await yard.client.instances()] == ["running", "running"]


async def test_job_that_has_a_result_keeps_it(yard: YardProcess, bus: JetStreamBus) -> None:
    job = make_job("j-known", "small")
    subject = RESULT.at(job_id=job.job_id)
    earlier = Result(job.job_id, prove(job), "w-earlier", 0.1)
    await bus.publish(Message(subject, encode_result(earlier), expect=Expect(subject, 0)))
    await bus.publish(
        Message(JOB.at(job_id=job.job_id), b'{"job_id": "j-known", "prime": "7", "size": "small"}')
    )

    await yard.launch(1)
    await all_done(bus)

    assert await cli.results(bus) == [earlier]


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        (b"nonsense", "this is not a job: not a JSON object"),
        (b'{"job_id": "j-bad", "prime": "91", "size": "small"}', "91 is not prime"),
    ],
)
async def test_impossible_job_ends_with_a_result_that_has_the_reason(
    yard: YardProcess, bus: JetStreamBus, payload: bytes, error: str
) -> None:
    await bus.publish(Message(JOB.at(job_id="j-bad"), payload))

    await yard.launch(1)
    await all_done(bus)

    [result] = await cli.results(bus)
    assert (result.job_id, result.certificate, result.error) == ("j-bad", None, error)


async def test_jobs_are_queued_also_where_no_yard_has_made_the_queue(bus: JetStreamBus) -> None:
    [job_id] = await cli.add_jobs(bus, 1, "small")

    page = await bus.range(JOBS, JOB.filter(), 1)
    assert [decode_job(each.payload) for each in page.messages] == [make_job(job_id, "small")]
