"""A gateway and a memory on a real server, and a client over real HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from anchorwatch.bus.port import Bus
from anchorwatch.core.names import SessionRef
from anchorwatch.core.records import Kind
from anchorwatch.core.session.commands import Control
from anchorwatch.core.session.decide import decide
from anchorwatch.journal.commit import Committer
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.topology.streams import journal_stream

from tests.support.in_process import Services, services_on
from tests.support.nats_server import NatsServer
from tests.support.openapi import check_answer
from tests.support.sessions import now_ms

TOKEN = "a token for tests"
AGENT = {
    "name": "keeper",
    "pack": "fleet",
    "objectives": ["500 proofs per hour"],
    "constraints": ["be careful"],
}


def client_of(url: str, token: str = TOKEN) -> httpx2.AsyncClient:
    """A client that compares every answer with the OpenAPI description."""
    return httpx2.AsyncClient(
        base_url=url,
        headers={"Authorization": f"Bearer {token}"},
        timeout=100.0,
        event_hooks={"response": [check_answer]},
    )


@dataclass
class House:
    """The services, and what a client does to them."""

    services: Services
    bus: Bus
    http: httpx2.AsyncClient = field(default_factory=httpx2.AsyncClient)

    @property
    def url(self) -> str:
        address: dict[str, Any] = json.loads((self.services.directory / "gateway.json").read_text())
        return str(address["url"])

    async def open_gateway(self) -> None:
        await self.services.start("gateway", port=0, token=TOKEN)
        await self.http.aclose()
        self.http = client_of(self.url)

    async def restart_gateway(self) -> None:
        await self.services.stop("gateway-1")
        await self.open_gateway()

    async def make_session(self, name: str = "fleet") -> None:
        answer = await self.http.post("/api/sessions", json={"name": name, "agent": "keeper"})
        assert answer.status_code == 201, answer.text

    async def control(self, kind: Kind, session: str = "fleet") -> None:
        """As a person's control does: paused, deleted, …"""
        journal = SessionJournal(self.bus, Committer(self.bus, journal_stream()), "test")
        ref = SessionRef("default", session)
        state = await journal.load(ref, 0)
        await journal.append(ref, state, decide(state, Control(kind, "test", now_ms())), now_ms())

    async def inputs_in_journal(self, session: str = "fleet") -> int:
        page = await self.bus.range(journal_stream(), f"aw.journal.0.default.{session}.in.*", 1, limit=1000)
        return len(page.messages)


async def all_pages(house: House, path: str, **params: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        given = {"limit": "2", **params} | ({"cursor": cursor} if cursor else {})
        answer = await house.http.get(path, params=given)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        assert len(page["data"]) <= 2
        found += page["data"]
        cursor = page["next"]
        if cursor is None:
            return found


@pytest.fixture
async def services(server: NatsServer, bus: Bus, tmp_path: Path) -> AsyncIterator[Services]:
    del bus  # its streams must be there first
    async with services_on(server.url, tmp_path / "data") as made:
        yield made


@pytest.fixture
async def house(services: Services, bus: Bus) -> AsyncIterator[House]:
    """Gateway, memory, and the agent `keeper`."""
    made = House(services, bus)
    await services.start("memory")
    await made.open_gateway()
    answer = await made.http.put("/api/agents/keeper", json=AGENT)
    assert answer.status_code == 200, answer.text
    yield made
    await made.http.aclose()
