"""Those outside who want something of the mesh, and insist until they have a receipt: people, and what publishes events."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from anchorwatch.bus.port import Bus, Message
from anchorwatch.core.agents import AgentSpec
from anchorwatch.core.errors import Unavailable
from anchorwatch.core.names import SessionRef
from anchorwatch.journal.inputs import input_id
from anchorwatch.service.events import event_input_id
from anchorwatch.topology import subjects

from tests.sim.whole.services import Answer, Front, NoConnection

RETRY_S = 0.7
TRIES_MAX = 400
LONG_TEXT = "word " * 8_000
LARGE_DATA = "x" * 20_000
CONFLICT, UNAVAILABLE = 409, 503
REFUSALS = frozenset({404, CONFLICT, 410, 422})


@dataclass
class Wanted:
    """What was acknowledged, and must therefore never be lost. ``broken``: promises that the answers themselves broke."""

    receipts: dict[tuple[SessionRef, str], int] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def note(self, ref: SessionRef, key: str, body: Any) -> None:
        """A receipt was given."""
        mine = self.receipts.setdefault((ref, key), body["sequence"])
        if mine != body["sequence"]:
            self.broken.append(f"the key {key} got the receipts {mine} and {body['sequence']}")


class People:
    """Asks the gateways, each time another one."""

    def __init__(self, front: Front, gateways: Sequence[str], bus: Bus, chance: random.Random) -> None:
        self.wanted = Wanted()
        self._front = front
        self._gateways = gateways
        self._bus = bus
        self._chance = chance

    async def insist(
        self, method: str, path: str, body: Any = None, key: str | None = None, *, may_refuse: bool = False
    ) -> Answer:
        """Ask until there is an answer that is final: yes, or (``may_refuse``) no."""
        last: Any = "nobody was there"
        for _ in range(TRIES_MAX):
            gateway = self._chance.choice(self._gateways)
            try:
                answer = await self._front.ask(gateway, method, path, body, key)
            except NoConnection:
                await asyncio.sleep(RETRY_S)
                continue
            if answer.ok or (may_refuse and answer.status in REFUSALS):
                return answer
            last = answer
            if answer.status != UNAVAILABLE:
                break
            await asyncio.sleep(RETRY_S)
        raise AssertionError(f"{method} {path}: {last}")

    async def set_up(self, agent: AgentSpec, names: Sequence[str]) -> list[SessionRef]:
        """Apply the agent, and make its sessions."""
        definition = agent.model_dump(mode="json", exclude={"version"})
        await self.insist("PUT", f"/api/agents/{agent.name}", definition)
        for name in names:
            session = {"name": name, "agent": agent.name, "objectives": [name]}
            await self.insist("POST", "/api/sessions", session)
        return [SessionRef("default", name) for name in names]

    async def say(self, ref: SessionRef, key: str) -> None:
        """Send a message under a key, perhaps twice at once, perhaps a long one."""
        content = LONG_TEXT if self._chance.random() < 0.1 else f"do {key}"
        body = {"content": content, "priority": self._chance.choice(("P0", "P0", "P1"))}
        times = self._chance.choice((1, 1, 2, 3))
        path = f"/api/sessions/{ref.session}/inputs"
        answers = await asyncio.gather(*(self.insist("POST", path, body, key) for _ in range(times)))
        for answer in answers:
            self.wanted.note(ref, input_id("k", ref.workspace, ref.session, key), answer.body)
        if self._chance.random() < 0.2:
            other = await self.insist("POST", path, {"content": f"not {key}"}, key, may_refuse=True)
            if other.status != CONFLICT:
                self.wanted.broken.append(f"the key {key} was taken for another body")

    async def trigger(self, ref: SessionRef, key: str) -> None:
        """Ask for a turn now."""
        answer = await self.insist("POST", f"/api/sessions/{ref.session}/trigger", {"reason": key}, key)
        self.wanted.note(ref, input_id("k", ref.workspace, ref.session, key), answer.body)

    async def publish_by_api(self, id_: str) -> None:
        """Publish an event through a gateway."""
        event = {"source": "world", "type": "thing.seen", "data": {"id": id_}, "id": id_, "priority": "P1"}
        await self.insist("POST", "/api/events", event)
        self.wanted.events.append(event_input_id("default", "world", "world", id_))

    async def publish(self, id_: str) -> None:
        """Publish an event as any NATS client may, perhaps twice, perhaps a large one."""
        large = self._chance.random() < 0.15
        content = {"id": id_, "blob": LARGE_DATA if large else ""}
        subject = subjects.event("default", "world", "thing.changed")
        message = Message(subject, json.dumps(content).encode(), message_id=id_)
        for _ in range(self._chance.choice((1, 2))):
            await self._stored(message)
        self.wanted.events.append(input_id("ev", "message", subject, id_))

    async def _stored(self, message: Message) -> None:
        for _ in range(TRIES_MAX):
            try:
                await self._bus.publish(message)
                return
            except Unavailable:
                await asyncio.sleep(RETRY_S)
        raise AssertionError("an event could not be published")

    async def order(self, ref: SessionRef, verb: str, key: str, body: Any = None) -> bool:
        """Have a control carried out; False: it was refused, for what the session is doing now."""
        path = f"/api/sessions/{ref.session}/{verb}"
        return (await self.insist("POST", path, body or {}, key, may_refuse=True)).ok

    async def pause(self, ref: SessionRef, key: str, seconds: float) -> None:
        """Hold a session for a while."""
        if await self.order(ref, "pause", f"{key}-pause"):
            await asyncio.sleep(seconds)
            await self.order(ref, "resume", f"{key}-resume")

    async def turn_switch(self, key: str) -> None:
        """Stop the workspace or the mesh for a moment, unless another person has stopped it. Who turned it on can turn it off."""
        path, body = "/api/kill-switches", {"scope": self._chance.choice(("workspace", "mesh"))}
        turned = await self.insist("POST", path, {**body, "on": True}, f"{key}-on", may_refuse=True)
        if turned.ok:
            await asyncio.sleep(RETRY_S)
            await self.insist("POST", path, {**body, "on": False}, f"{key}-off")

    async def make_schedule(self, ref: SessionRef, name: str) -> None:
        """Have a session woken at each minute."""
        body = {
            "name": name,
            "session": ref.session,
            "cron": "* * * * *",
            "text": name,
            "overlap": self._chance.choice(("skip", "queue-one")),
        }
        await self.insist("POST", "/api/schedules", body, f"{name}-made")

    async def keep_schedule(self, ref: SessionRef, name: str) -> None:
        """Have a session woken by the clock for a while, perhaps with a pause."""
        await self.make_schedule(ref, name)
        await asyncio.sleep(self._chance.uniform(2, 8))
        if self._chance.random() < 0.3:
            await self.insist("POST", f"/api/schedules/{name}/pause", {}, f"{name}-pause", may_refuse=True)
            await self.insist("POST", f"/api/schedules/{name}/resume", {}, f"{name}-resume", may_refuse=True)
        await self.insist("DELETE", f"/api/schedules/{name}", None, f"{name}-deleted")

    async def abandon(self, agent: str, name: str) -> None:
        """Make a session with a schedule, and delete it."""
        await self.insist("POST", "/api/sessions", {"name": name, "agent": agent})
        ref = SessionRef("default", name)
        await self.make_schedule(ref, name)
        await self.order(ref, "delete", f"{name}-deleted")

    async def retry(self, letter: str, key: str) -> None:
        """Have the message of a letter handled once more."""
        await self.insist("POST", f"/api/dead-letters/{letter}/retry", None, key)

    async def settle(self, call: str, *, done: bool) -> None:
        """Say what became of an effect that is unknown, as a person finds it out."""
        body = {"call": call, "verdict": "done" if done else "not-done"}
        answer = await self.insist("POST", "/api/effects/resolve", body, f"settle-{call}", may_refuse=True)
        if not answer.ok:
            self.wanted.broken.append(f"{call} could not be settled: {answer.body}")
