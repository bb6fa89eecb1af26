"""The incident on a real mesh: its steps in order, and the observations of each."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any

from anchorwatch_fleet import PACK, SESSION, cli, default_agent
from anchorwatch_fleet.client import YardClient
from anchorwatch_fleet.instances import Instance
from anchorwatch_fleet.jobs import make_job

from anchorwatch.bus.port import Bus
from anchorwatch.cli.api import Api
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.journal.history import Claim, History
from anchorwatch.packs.port import PackEnvironment
from anchorwatch.service.runtimes import pack_settings
from anchorwatch.testing.checks import Arrivals, Evidence
from anchorwatch.testing.crash_test.collect import Acknowledged, collect
from anchorwatch.testing.demo.evidence import Incident, JournalMark
from anchorwatch.testing.demo.killer import Killer
from anchorwatch.testing.demo.stage import Stage
from anchorwatch.testing.live import Follower, until
from anchorwatch.testing.receiver import Receiver
from anchorwatch.topology.streams import ANCHORS_BUCKET, journal_stream

WORKSPACE = "default"
JOBS = 60
WORKERS = 3
HEARTBEAT_S = 3600.0
FIRST_KEY = "demo-before-the-incident"
SLOW_LAUNCH_S = 3.0
"""How long the yard takes for the agent's launch: the executor's claim is open during that time."""
RESULTS_BEFORE_NATS_DIES = (6, 20)
WORK_S_MAX = 180.0
LAUNCH = "launch_instances"
DELIVERED = "sent"
CHANNEL = "demo"
QUESTION = "How is the fleet doing?"

Tell = Callable[[str], None]


class Story:
    """One run of the incident. ``evidence``: the observations so far, even if the story breaks off."""

    def __init__(self, stage: Stage, bus: Bus, receiver: Receiver, chance: random.Random, tell: Tell) -> None:
        self.evidence = Incident(heartbeat_s=HEARTBEAT_S)
        self._stage = stage
        self._bus = bus
        self._receiver = receiver
        self._chance = chance
        self._tell = tell
        self._yard = YardClient(bus)
        self._journal = Follower(bus, SessionRef(WORKSPACE, SESSION))
        self._acknowledged = Acknowledged()
        self._killer = Killer(stage, bus)

    async def play(self) -> None:
        """From a quiet mesh to the end of the incident.

        Raises:
            DidNotHappen: the mesh did not do what the story waits for.
        """
        await self._begin()
        await self._strike()
        await self._kill_planner_and_executor()
        await self._kill_notifier()
        await self._kill_server()
        await self._until_done()
        await self._ask()

    async def collect(self) -> None:
        """Read the rest of the evidence that the checks need.

        Raises:
            Unavailable: a part of the mesh does not answer.
        """
        key = f"{WORKSPACE}.{SESSION}"
        entry = await (await self._bus.bucket(ANCHORS_BUCKET)).get(key)
        instances = await self._yard.instances(10.0)
        found = await self._promises()
        self._note(
            history=found.history,
            accepted=found.accepted,
            classes=found.classes,
            calls=found.calls,
            arrivals=found.arrivals,
            results=tuple(await cli.results(self._bus)),
            launched=await cli.launches(self._bus),
            stopped=tuple(each.id for each in instances if each.state == "stopped"),
            anchor=json.loads(entry.value) if entry else {},
            anchor_key=f"KV {ANCHORS_BUCKET}/{key}",
        )

    async def _promises(self) -> Evidence:
        """The evidence that a crash test collects for any session."""
        seen = Counter(each.webhook_id for each in self._receiver.arrivals if each.accepted)
        agent = default_agent()
        environment = PackEnvironment(self._bus, WORKSPACE, agent, pack_settings(PACK.name))
        runtime = await PACK.connect(environment)
        try:
            return await collect(
                SessionRef(WORKSPACE, SESSION),
                await self._journal.history(),
                self._acknowledged,
                classes={tool.name: tool.effect_class for tool in PACK.tools(agent)},
                notes=self._stage.calls,
                runtime=runtime,
                arrivals=[Arrivals(CHANNEL, seen, deduplicates=True)],
            )
        finally:
            await runtime.close()

    def _note(self, **seen: Any) -> None:  # noqa: ANN401 - the evidence's own fields
        """Record observations, with the present kills and arrivals."""
        self.evidence = replace(
            self.evidence, kills=self._killer.kills, requests=self._receiver.arrivals, **seen
        )

    # ------------------------------------------------------------ a quiet fleet

    async def _begin(self) -> None:
        """Create an agent without a reserve, wait for its first turn, and start three workers by hand."""
        spec = default_agent()
        # A worker in reserve would make the launch needless, and a fourth one would not shorten the work.
        config = {
            **spec.config,
            "fleet_min": 0,
            "fleet_limit": WORKERS,
            "tasks_per_instance": JOBS // WORKERS,
        }
        spec = spec.model_copy(update={"config": config})
        mesh = self._stage.mesh
        with Api(mesh.api_url, mesh.token) as api:
            api.put(f"/api/agents/{spec.name}", spec.model_dump(mode="json"))
            api.post("/api/sessions", {"name": SESSION, "agent": spec.name})
        await self._yard.ask("launch", 10.0, effect_key=FIRST_KEY, count=WORKERS, priority="normal")
        self._note(first_keys={FIRST_KEY: WORKERS})
        workers = await self._running(WORKERS)
        await self._ended(1)
        self._tell(
            f"a quiet fleet: {', '.join(each.id for each in workers)} run, nothing is queued, turn 1 ended"
        )

    async def _running(self, count: int) -> list[Instance]:
        async def look() -> list[Instance] | None:
            running = [each for each in await self._yard.instances() if each.state == "running"]
            return running if len(running) >= count else None

        return await until(look, f"{count} workers run")

    # ------------------------------------------------------------ the incident

    async def _strike(self) -> None:
        """Queue the work, and kill every worker with signal 9."""
        # The agent's launch is made slow, so that its claim is open for a while.
        await self._yard.ask("misbehave", mode="slow", verb="launch", times=1, slow_s=SLOW_LAUNCH_S)
        batch = f"demo{self._chance.getrandbits(32):08x}"
        jobs = await cli.add_jobs(self._bus, JOBS, batch=batch)
        workers = await self._running(WORKERS)
        for each in workers:
            if each.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each.pid, signal.SIGKILL)
        self._receiver.hold_next()
        self._note(jobs={job_id: make_job(job_id).prime for job_id in jobs})
        pids = ", ".join(f"{each.id} (pid {each.pid})" for each in workers)
        self._tell(f"{JOBS} jobs queued; kill -9: {pids}")

        async def dead() -> Mapping[str, Any] | None:
            facts: Mapping[str, Any] = (await cli.status(self._bus))["facts"]
            self._note(incident=facts)
            return facts if facts["workers_dead"] else None

        facts = await until(dead, "the yard sees that the workers are dead")
        self._tell(
            f"active={facts['demand_active']}, queued={facts['demand_queued']}, workers_dead={facts['workers_dead']}: "
            f"{facts['tasks_queued']} tasks wait and no worker runs"
        )

    # ------------------------------------------------------------ the kills

    async def _kill_planner_and_executor(self) -> None:
        """During the launch, kill the planner that holds the turn, then the executor that holds the claim."""
        claim, history = await self._launch_claim()
        held = await self._killer.owner_of(claim)
        acquired = history.of_kind(Kind.ACQUIRED)[-1].anchor
        holder = str(acquired.execution_id).partition(":")[0]
        planner = self._killer.kill("planner", f"while it held run {acquired.run_id}", holder)
        executor = self._killer.kill(
            "executor", f"while it held the claim at sequence {claim.sequence}", held.instance
        )
        self._note(claim=replace(held, killed_pid=executor.pid))
        self._tell(
            f"{claim.call} is claimed at sequence {claim.sequence} by {held.instance}:{held.incarnation}"
        )
        self._tell(
            f"kill -9: {planner.instance} (pid {planner.pid}), {executor.instance} (pid {executor.pid})"
        )
        await self._back(planner.service, executor.service)

    async def _launch_claim(self) -> tuple[Claim, History]:
        async def look() -> tuple[Claim, History] | None:
            history = await self._journal.history()
            launches = {each.call for each in history.commands if each.decided.tool == LAUNCH}
            claim = next((each for each in history.claims if each.call in launches), None)
            return (claim, history) if claim else None

        return await until(look, "an executor claims the agent's launch")

    async def _kill_notifier(self) -> None:
        """Kill the notifier while a receiver has its request and has not answered."""

        async def holding() -> bool:
            return self._receiver.holding

        await until(holding, "a notification is sent")
        arrival = self._receiver.arrivals[-1]
        kill = self._killer.kill("notifier", f"while {arrival.webhook_id} was sent and not answered")
        self._receiver.release()
        self._tell(f"kill -9: {kill.instance} (pid {kill.pid}), {kill.during}")
        await self._back(kill.service)

        async def again() -> bool:
            return any(
                each.accepted and each.webhook_id == arrival.webhook_id for each in self._receiver.arrivals
            )

        await until(again, f"{arrival.webhook_id} arrives again")

    async def _kill_server(self) -> None:
        """Kill the server while workers take jobs from it and store results in it."""
        wanted = self._chance.randint(*RESULTS_BEFORE_NATS_DIES)

        async def some_done() -> int | None:
            done = len(await cli.results(self._bus))
            return done if done >= wanted else None

        done = await until(some_done, f"{wanted} jobs are done", WORK_S_MAX)
        before = (await self._bus.stream_state(journal_stream())).last_sequence
        digest = await self._digest(before)
        kill = self._killer.kill("nats", f"with {JOBS - done} of {JOBS} jobs to do")
        self._tell(f"kill -9: the NATS server (pid {kill.pid}), {kill.during}")
        await self._back(kill.service)
        after = await until(lambda: self._digest(before), "the journal answers again")
        state = await until(lambda: self._bus.stream_state(journal_stream()), "the journal answers again")
        self._note(mark=JournalMark(before, digest, state.last_sequence, after))

    async def _digest(self, sequence: int) -> str:
        """The digest of one record; empty if it does not exist."""
        page = await self._bus.range(journal_stream(), "aw.journal.>", sequence, limit=1)
        found = [each for each in page.messages if each.sequence == sequence]
        return sha256(found[0].payload).hexdigest() if found else ""

    async def _back(self, *services: str) -> None:
        kills = [each for each in self._killer.kills if each.service in services]
        for kill in await asyncio.gather(*(self._killer.back(each) for each in kills)):
            self._tell(f"{kill.instance} is back after {kill.back_s:.1f} s (pid {kill.new_pid})")

    # ------------------------------------------------------------ the end

    async def _until_done(self) -> None:
        """Wait until every job has a result."""
        reported = 0

        async def all_done() -> bool:
            nonlocal reported
            done = len({each.job_id for each in await cli.results(self._bus)})
            if done // 20 > reported // 20:
                self._tell(f"{done} of {JOBS} jobs done")
            reported = done
            # A job whose ack the server lost is delivered and checked once more.
            return done >= JOBS and (await cli.status(self._bus))["facts"]["tasks_queued"] == 0

        await until(all_done, f"{JOBS} jobs have a result", WORK_S_MAX)

    async def _ask(self) -> None:
        """Send a person's question for one more turn, and wait for rest and for all deliveries."""
        mesh = self._stage.mesh
        with Api(mesh.api_url, mesh.token) as api:
            receipt = api.post(f"/api/sessions/{SESSION}/inputs", {"content": QUESTION})
        self._acknowledged.inputs.append(int(receipt["sequence"]))
        self._tell(f"a person asks: {QUESTION}")

        async def at_rest() -> History | None:
            history = await self._journal.history()
            anchor = history.anchors[-1].anchor
            newest = max(each.sequence for each in history.inputs)
            rest = anchor.status == "idle" and anchor.inputs_through >= max(newest, receipt["sequence"])
            return history if rest else None

        history = await until(at_rest, "the session comes to rest")
        last = history.anchors[-1].anchor
        self._tell(f"turn {last.last_run_id} ended {last.last_run_outcome}: {_last_text(history)}")

        async def all_delivered() -> bool:
            received = {each.record for each in self._receiver.arrivals if each.accepted}
            now = await self._journal.history()
            ended = {each.sequence for each in now.of_kind(Kind.TURN_ENDED)}
            delivered = sum(1 for each in now.sent if each.state == DELIVERED)
            return ended <= received and delivered >= len(ended)

        await until(all_delivered, "every ended turn is notified")

    async def _ended(self, run: int) -> None:
        async def look() -> bool:
            return (await self._journal.history()).ended(run) is not None

        await until(look, f"turn {run} ends")


def _last_text(history: History) -> str:
    ended = history.of_kind(Kind.TURN_ENDED)[-1]
    return ended.text or ended.reason
