"""Lists from memory over HTTP, and the live stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from anchorwatch.core.effect.state import Claimed, Outcome, Owner
from anchorwatch.core.session.commands import Acquire, CommitStep
from anchorwatch.core.session.events import StepHead
from anchorwatch.core.session.state import SeenObservation
from anchorwatch.journal.commit import Committer
from anchorwatch.journal.inputs import accept
from anchorwatch.journal.mapping import input_body

from tests.integration.gateway.conftest import House, all_pages
from tests.support.sessions import AGENT, PLANNER, ScriptedSession, now_ms


async def turn(house: House, session: ScriptedSession, run: int) -> None:
    """A turn that is woken by a message and does one thing."""
    answer = await house.http.post("/api/sessions/fleet/inputs", json={"content": f"look {run}"})
    sequence = answer.json()["sequence"]
    await session.do(Acquire(f"turn_{run}", AGENT, PLANNER, sequence, sequence, now_ms()))
    decided = await session.command("set", item=f"i{run}")
    done = Outcome(decided.call, "set", "succeeded", f"set i{run}", {}, turn_id=f"turn_{run}")
    await session.record(decided, Claimed(Owner("executor-1", "i1"), 1, f"key-{run}"), done)
    await session.end(reason=f"run {run} done")


async def worked(house: House, runs: int) -> ScriptedSession:
    """A session with ended turns, whose last record this gateway has told of."""
    await house.make_session()
    session = ScriptedSession(house.bus)
    for run in range(1, runs + 1):
        await turn(house, session, run)
    await house.http.get("/api/sessions/fleet/anchor")
    return session


async def test_pages_of_every_list_make_up_the_list(house: House) -> None:
    await worked(house, 5)
    turns = await all_pages(house, "/api/sessions/fleet/turns")
    assert [(each["run_id"], each["turn_id"], each["status"], each["outcome"]) for each in turns] == [
        (run, f"turn_{run}", "completed", "success") for run in range(1, 6)
    ]
    backwards = await all_pages(house, "/api/sessions/fleet/turns", order="desc")
    assert backwards == turns[::-1]
    wakes = await all_pages(house, "/api/sessions/fleet/wakes", kind="message")
    assert [(each["text"], each["disposition"], each["run_id"]) for each in wakes] == [
        (f"look {run}", "ran", run) for run in range(1, 6)
    ]
    items = await all_pages(house, "/api/sessions/fleet/items", turn="turn_2")
    assert [each["type"] for each in items] == ["message", "observation", "tool_call", "tool_result"]
    effects = await all_pages(house, "/api/effects", session="fleet")
    assert [(each["call"], each["state"], each["owner"]) for each in effects] == [
        (f"fleet/{run}.1.1", "succeeded", "executor-1") for run in range(1, 6)
    ]
    timeline = await all_pages(house, "/api/sessions/fleet/timeline", turn="1")
    assert [each["kind"] for each in timeline] == [
        "input",
        "acquired",
        "command",
        "claim",
        "outcome",
        "turn_ended",
    ]
    assert await all_pages(house, "/api/deliveries") == []
    assert await all_pages(house, "/api/memories") == []


async def test_turn_is_found_by_id_and_run_number(house: House) -> None:
    await worked(house, 2)
    by_id = (await house.http.get("/api/sessions/fleet/turns/turn_2")).json()
    assert by_id == (await house.http.get("/api/sessions/fleet/turns/2")).json()
    assert [each["text"] for each in by_id["inputs"]] == ["look 2"]
    assert [call["call"] for call in by_id["steps"][0]["calls"]] == ["fleet/2.1.1"]
    for missing in ("turn_9", "9", "9" * 60):
        answer = await house.http.get(f"/api/sessions/fleet/turns/{missing}")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert (await house.http.get("/api/sessions/none/turns")).status_code == 404


async def test_lists_hold_what_earlier_receipts_reported(house: House) -> None:
    await house.make_session()
    for n in range(20):
        answer = await house.http.post("/api/sessions/fleet/inputs", json={"content": f"look {n}"})
        wakes = (await house.http.get("/api/sessions/fleet/wakes?order=desc&limit=1")).json()["data"]
        assert wakes[0]["input_id"] == answer.json()["input_id"]
        assert wakes[0]["disposition"] == "pending"
        assert wakes[0]["due_at"] is not None


async def test_at_least_beyond_the_projections_is_unavailable(house: House) -> None:
    await house.make_session()
    answer = await house.http.get("/api/sessions/fleet/turns?at_least=1000000")
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    fine = await house.http.get("/api/sessions/fleet/turns?at_least=1")
    assert int(fine.headers["Anchorwatch-As-Of"]) >= 1


async def records(house: House, after: int | None, last_id: str = "") -> AsyncIterator[dict[str, Any]]:
    params = {} if after is None else {"after": str(after)}
    headers = {"Last-Event-ID": last_id} if last_id else {}
    async with house.http.stream(
        "GET", "/api/sessions/fleet/stream", params=params, headers=headers
    ) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))


async def take(stream: AsyncIterator[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    found = []
    async with asyncio.timeout(30):
        async for record in stream:
            found.append(record)
            if len(found) == count:
                break
    return found


async def test_stream_resumes_after_the_last_event_id(house: House) -> None:
    session = await worked(house, 1)
    past = await take(records(house, 0), 7)
    assert [each["kind"] for each in past][:3] == ["created", "input", "acquired"]
    resumed = asyncio.create_task(take(records(house, None, str(past[2]["sequence"])), 4))
    assert await resumed == past[3:]
    live = asyncio.create_task(take(records(house, past[-1]["sequence"]), 6))
    await turn(house, session, 2)
    kinds = [each["kind"] for each in await live]
    assert kinds == ["input", "acquired", "command", "claim", "outcome", "turn_ended"]
    missing = await house.http.get("/api/sessions/none/stream")
    assert missing.status_code == 404


async def test_timeline_and_stream_show_facts_data_and_changes(house: House) -> None:
    await house.make_session()
    session = ScriptedSession(house.bus)
    stream = asyncio.create_task(take(records(house, 0), 6))
    event = input_body("event", 1, source="fleet", type_="instance.dead", data={"instance": "i-3"})
    await accept(Committer(house.bus, "JOURNAL_0"), session.ref, "ev-1", event, at_ms=now_ms(), writer="test")
    await session.acquire()
    facts = {"tasks_queued": 5, "workers_alive": None}
    seen = SeenObservation("d1", now_ms(), "seen", facts)
    await session.do(CommitStep(PLANNER, StepHead(1, "no worker", seen, None, calls=0), ()))
    await session.end()
    await house.http.post("/api/sessions/fleet/pause", json={"reason": "it rains"})
    await house.http.get("/api/sessions/fleet/anchor")
    timeline = await all_pages(house, "/api/sessions/fleet/timeline")
    by_kind = {each["kind"]: each for each in timeline}
    assert by_kind["input"]["data"] == 'instance="i-3"'
    assert by_kind["step"]["facts"] == facts
    assert by_kind["paused"]["changes"]["status"] == {"from": "idle", "to": "paused"}
    for live in await stream:
        assert live.items() <= by_kind[live["kind"]].items()


async def test_stopping_gateway_ends_its_streams(house: House) -> None:
    await worked(house, 1)
    stream = records(house, 0)
    await anext(stream)
    async with asyncio.timeout(30):
        await house.services.stop("gateway-1")
        async for _ in stream:
            pass


async def test_unknown_parameter_is_refused(house: House) -> None:
    await house.make_session()
    response = await house.http.get("/api/sessions/fleet/turns", params={"statsu": "failed"})
    assert (response.status_code, response.json()["code"]) == (400, "bad_request")
    assert "'statsu'" in response.json()["message"]
    assert "status" in response.json()["hint"]
    response = await house.http.post("/api/sessions/fleet/inputs", params={"foo": "1"}, json={"content": "x"})
    assert response.status_code == 400
    assert (await all_pages(house, "/api/sessions/fleet/wakes", kind="message")) == []
    assert (await house.http.get("/healthz", params={"at": "1"})).status_code == 200, (
        "probes add what they like"
    )
