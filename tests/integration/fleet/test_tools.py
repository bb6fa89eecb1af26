"""The pack's tools on a real yard, above all on one that misbehaves."""

from __future__ import annotations

from typing import Any

import pytest
from anchorwatch.bus.jetstream import JetStreamBus
from anchorwatch.core.names import CallId, SessionRef
from anchorwatch.packs.port import OutcomeUnknown, PackEnvironment, PackRuntime, ToolContext, ToolFailed
from anchorwatch_fleet import PACK, cli, default_agent

from tests.integration.fleet.yards import YardProcess, until

LAUNCH = {"count": 2, "launch_priority": "emergency"}


def context(effect_key: str = "key", deadline_s: float = 20) -> ToolContext:
    return ToolContext(
        ref=SessionRef("default", "fleet"),
        call=CallId(1, 1, 1),
        turn_id="turn_1",
        agent=default_agent(),
        effect_key=effect_key,
        attempt=1,
        deadline_s=deadline_s,
        now_ms=0,
        heartbeat_s=300,
    )


@pytest.fixture
async def fleet(bus: JetStreamBus) -> PackRuntime:
    return await PACK.connect(PackEnvironment(bus, "default", default_agent(), {}))


async def test_tools_do_what_their_descriptions_say(yard: YardProcess, fleet: PackRuntime) -> None:
    launched = await fleet.run("launch_instances", LAUNCH, context("k1"))
    first, second = launched.data["instances"]
    assert launched.text.startswith(f"Launched 2: {first}, {second}")
    await yard.until_state(first, "running")

    logs = await fleet.run("instance_logs", {"instance_id": first, "lines": 5}, context("k2"))
    assert "running, warm after" in logs.text

    restarted = await fleet.run("restart_instance", {"instance_id": first}, context("k3"))
    assert restarted.data["instances"] == [first]

    stopped = await fleet.run("stop_instance", {"instance_id": second}, context("k4"))
    assert (stopped.text, stopped.data["was_live"]) == (f"Stopped {second}", True)
    again = await fleet.run("stop_instance", {"instance_id": second}, context("k5"))
    assert again.text == f"{second} had already ended: stopped"


async def test_error_answer_is_a_certain_failure(yard: YardProcess, fleet: PackRuntime) -> None:
    await yard.client.ask("misbehave", mode="error", verb="launch")

    with pytest.raises(ToolFailed, match="injected fault"):
        await fleet.run("launch_instances", LAUNCH, context())

    assert await yard.client.instances() == []


@pytest.mark.parametrize(("mode", "done"), [("silent", 0), ("timeout_after", 2)])
async def test_missing_answer_is_unknown_and_the_same_key_settles_it(
    yard: YardProcess, fleet: PackRuntime, bus: JetStreamBus, mode: str, done: int
) -> None:
    await yard.client.ask("misbehave", mode=mode, verb="launch")

    with pytest.raises(OutcomeUnknown, match="did not answer the request to launch"):
        await fleet.run("launch_instances", LAUNCH, context(deadline_s=1))

    async def did() -> bool:
        return len(await yard.client.instances()) == done

    await until(did, "the yard did what it was asked, or did not")
    launched = await fleet.run("launch_instances", LAUNCH, context())
    instances = [each.id for each in await yard.client.instances()]
    assert launched.data["instances"] == instances

    async def once() -> bool:
        return await cli.launches(bus) == {"key": dict.fromkeys(instances, 1)}

    await until(once, "each was launched once")


async def test_slow_answer_is_an_answer(yard: YardProcess, fleet: PackRuntime) -> None:
    await yard.client.ask("misbehave", mode="slow", verb="launch", slow_s=0.3)

    assert len((await fleet.run("launch_instances", LAUNCH, context())).data["instances"]) == 2


async def test_missing_yard_means_nothing_was_requested_for_certain(
    yard: YardProcess, fleet: PackRuntime
) -> None:
    yard.kill9()

    with pytest.raises(ToolFailed, match="nothing was requested"):
        await fleet.run("launch_instances", LAUNCH, context(deadline_s=2))


@pytest.mark.parametrize(("mode", "state"), [("silent", "not_done"), ("timeout_after", "done")])
async def test_restart_without_an_answer_is_settled_by_a_yard_query(
    yard: YardProcess, fleet: PackRuntime, mode: str, state: str
) -> None:
    [instance] = await yard.launch(1, "k0")
    args = {"instance_id": instance}
    await yard.client.ask("misbehave", mode=mode, verb="restart")
    with pytest.raises(OutcomeUnknown, match="did not answer the request to restart"):
        await fleet.run("restart_instance", args, context(deadline_s=2))

    async def settled() -> bool:
        return (await fleet.reconcile("restart_instance", args, context())).state == state

    await until(settled, f"the yard says that it is {state}")
    reconciled = await fleet.reconcile("restart_instance", args, context())
    assert reconciled.rejects_used_key is False
    assert (await yard.instance(instance)).epoch == (2 if state == "done" else 1)


async def test_unreachable_yard_leaves_a_restart_unknown(yard: YardProcess, fleet: PackRuntime) -> None:
    yard.kill9()

    assert (
        await fleet.reconcile("restart_instance", {"instance_id": "w-1"}, context(deadline_s=1))
    ).state == "unknown"


async def test_above_the_limit_the_yard_refuses_too(yard: YardProcess, fleet: PackRuntime) -> None:
    await yard.launch(5, "k0")

    with pytest.raises(ToolFailed, match="exceed the limit of 6"):
        await fleet.run("launch_instances", LAUNCH, context())


@pytest.mark.parametrize(
    ("tool", "args"), [("recall", {"query": "x"}), ("launch_instances", {}), ("nothing", {})]
)
async def test_unsupported_call_fails_without_an_effect(
    fleet: PackRuntime, tool: str, args: dict[str, Any], yard: YardProcess
) -> None:
    with pytest.raises(ToolFailed):
        await fleet.run(tool, args, context())
    assert await yard.client.instances() == []


async def test_silent_yard_is_unknown_and_the_queue_is_still_known(
    yard: YardProcess, fleet: PackRuntime, bus: JetStreamBus
) -> None:
    await cli.add_jobs(bus, 3, "small")
    before = await fleet.observe()
    await yard.client.ask("misbehave", mode="silent", verb="list", times=100)

    now = await fleet.observe()

    assert before.facts["workers_alive"] == 0
    assert (now.facts["workers_alive"], now.facts["workers_dead"], now.facts["tasks_queued"]) == (
        None,
        None,
        3,
    )
    assert [each.type for each in fleet.changes(before, now)] == ["source.unknown"]
    assert "Instances: unknown" in now.text


async def test_missing_server_makes_all_facts_unknown_without_an_error(
    fleet: PackRuntime, yard: YardProcess
) -> None:
    yard.server.kill9()

    seen = await fleet.observe()

    assert {name for name, fact in seen.facts.items() if fact is not None} == {"fleet_limit"}


async def test_killed_worker_is_reported_as_a_highest_priority_event(
    yard: YardProcess, fleet: PackRuntime, bus: JetStreamBus
) -> None:
    [instance] = await yard.launch(1)
    before = await fleet.observe()
    await cli.kill(bus, instance)

    [event] = fleet.changes(before, await fleet.observe())

    dead = await yard.instance(instance)
    assert (event.type, event.priority, event.event_id) == (
        "instance.dead",
        "P0",
        f"dead-{instance}-{dead.since_ms}",
    )
