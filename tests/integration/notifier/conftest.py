"""A notifier in this process, with its channels in a file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import pytest
from anchorwatch.bus.port import Bus
from anchorwatch.service.context import ServiceContext
from anchorwatch_notifier.main import run
from anchorwatch_notifier.worker import CONSUMER

from tests.support.services import Running, make_context
from tests.support.sessions import ScriptedSession
from tests.support.waiting import eventually


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    services = Running()
    yield services
    await services.stop()


class EverybodyIsDead:
    async def alive(self, instance: str, incarnation: str) -> Literal["alive", "dead", "unknown"]:
        del instance, incarnation
        return "dead"


class Notifiers:
    """Starts notifiers with the channels of one test."""

    def __init__(self, bus: Bus, running: Running, file: Path) -> None:
        self._bus = bus
        self._running = running
        self._file = file

    def channels(self, text: str) -> None:
        self._file.write_text(text)

    async def start(self, instance: str = "notifier-1") -> ServiceContext:
        context = make_context(self._bus, "notifier", instance, EverybodyIsDead(), notify=self._file)
        return await self._running.start(run, context)

    async def kill(self, context: ServiceContext) -> None:
        await self._running.kill(context)


@pytest.fixture
def notifiers(bus: Bus, running: Running, tmp_path: Path) -> Notifiers:
    return Notifiers(bus, running, tmp_path / "notify.toml")


@pytest.fixture
async def session(bus: Bus) -> ScriptedSession:
    made = ScriptedSession(bus)
    await made.create()
    return made


async def settled(bus: Bus, sequence: int, within_s: float = 30.0) -> None:
    """Wait until the notifier is done with every record up to here."""
    consumer = await bus.consumer(CONSUMER)

    async def acked() -> bool:
        state = await consumer.state()
        return state.ack_floor_sequence >= sequence or (state.pending == 0 and state.ack_pending == 0)

    await eventually(acked, within_s)
