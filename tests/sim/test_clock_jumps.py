"""A clock that is set forward and back again, as time services do, delays a session at most; it never silences one."""

from __future__ import annotations

import asyncio
from pathlib import Path

from anchorwatch.bus.port import ConsumerSpec
from anchorwatch.core.names import SessionRef
from anchorwatch.edges import Edge
from anchorwatch.service.provisioning import ensure_topology
from anchorwatch.testing.bus import SimServer
from anchorwatch.testing.bus.loop import run as run_virtual
from anchorwatch.testing.mesh import SimMesh
from anchorwatch.testing.process import Life, LoopClock
from anchorwatch.topology.streams import TICKS
from anchorwatch.topology.subjects import SessionSubjects
from anchorwatch_planner.wakeups import WakeupTimers, timer_of_session

from tests.sim.test_planner import agent, mesh_test, once

HOUR_S = 3_600.0
REF = SessionRef("default", "s")


def test_check_that_fired_too_early_fires_again_on_time(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner")
        ref = await mesh.session("s", agent(tmp_path, once(), heartbeat_s=60))
        await mesh.until_rest(ref, 1)
        planner = mesh.processes["planner-1"]
        mesh.watch.plan(Edge.PLANNER_TICK_INPUT_AFTER, 1, Life.die_here)
        mesh.server.step_clock(HOUR_S)

        async def dead() -> bool:
            return not planner.running

        await mesh.until(dead, within_s=30)
        mesh.server.step_clock(-HOUR_S)
        await planner.start()
        await mesh.until_rest(ref, 2, within_s=10)
        await mesh.until_rest(ref, 4, within_s=150)

    mesh_test(1, body, sweep_s=5)


def test_input_accepted_by_a_clock_ahead_is_still_taken(tmp_path: Path) -> None:
    async def body(mesh: SimMesh) -> None:
        await mesh.open("planner")
        ref = await mesh.session("s", agent(tmp_path, once(), heartbeat_s=3600))
        await mesh.until_rest(ref, 1)
        await mesh.processes["planner-1"].kill()
        mesh.server.step_clock(HOUR_S)
        await mesh.say(ref, "m")
        mesh.server.step_clock(-HOUR_S)
        await mesh.processes["planner-1"].start()
        await mesh.until_rest(ref, 2, within_s=20)

    mesh_test(1, body)


def test_fired_schedule_stays_fired_when_the_clock_is_set_back() -> None:
    async def main() -> None:
        server = SimServer()
        bus = server.connect()
        await ensure_topology(bus)
        schedules = WakeupTimers(bus, LoopClock(server))
        subject = SessionSubjects(REF).tick_schedule
        due_ms = server.now_ms() + 10_000
        await schedules.ensure(timer_of_session(REF), due_ms)
        # Another planner takes the tick.
        await asyncio.sleep(11)
        assert (await bus.last(TICKS, [subject])).messages == ()
        server.step_clock(-HOUR_S)
        await schedules.ensure(timer_of_session(REF), due_ms + 1)
        assert (await bus.last(TICKS, [subject])).messages

    run_virtual(main())


def test_server_clock_ahead_fires_once_early_and_again_on_time() -> None:
    class Behind(LoopClock):
        def now_ms(self) -> int:
            return super().now_ms() - round(HOUR_S * 1000)

    async def main() -> None:
        server = SimServer()
        bus = server.connect()
        await ensure_topology(bus)
        clock = Behind(server)
        schedules, bell, rings = WakeupTimers(bus, clock), timer_of_session(REF), 0
        due_ms = clock.now_ms() + 10_000
        consumer = await bus.consumer(ConsumerSpec(TICKS, (bell.target,), "planner-ticks"))
        while clock.now_ms() < due_ms:
            await schedules.ensure(bell, due_ms)
            for delivery in await consumer.fetch(1, 20.0):
                schedules.on_fired(bell, delivery.stored.time_ms)
                await delivery.ack()
                rings += 1
        assert rings == 2
        assert clock.now_ms() - due_ms < 1_000

    run_virtual(main())
