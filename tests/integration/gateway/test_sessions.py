"""Making sessions, and their anchor from the journal."""

from __future__ import annotations

import asyncio

from anchorwatch.core.records import Kind
from anchorwatch.service.agents import AgentDirectory

from tests.integration.gateway.conftest import AGENT, House, all_pages
from tests.support.sessions import ScriptedSession

NEW = {"name": "fleet", "agent": "keeper"}


async def test_concurrent_requests_create_one_session(house: House) -> None:
    answers = await asyncio.gather(*(house.http.post("/api/sessions", json=NEW) for _ in range(20)))
    assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]
    sessions = [answer.json() for answer in answers]
    assert {session["sequence"] for session in sessions} == {sessions[0]["sequence"]}
    assert {(each["name"], each["agent"], each["agent_version"]) for each in sessions} == {
        ("fleet", "keeper", 1)
    }
    agents = await AgentDirectory.open(house.bus)
    assert await agents.bindings("default") == {"fleet": "keeper"}


async def test_session_starts_with_its_agents_directives(house: House) -> None:
    await house.http.post("/api/sessions", json=NEW)
    anchor = (await house.http.get("/api/sessions/fleet/anchor")).json()
    assert anchor["objectives"] == ["500 proofs per hour"]
    assert anchor["constraints"] == ["be careful"]
    own = {"name": "other", "agent": "keeper", "objectives": ["rest"], "constraints": ["be quiet"]}
    made = (await house.http.post("/api/sessions", json=own)).json()
    assert made["objectives"] == ["rest"]
    assert made["constraints"] == ["be careful", "be quiet"]


async def test_repeated_creation_is_the_same_or_a_conflict(house: House) -> None:
    own = {**NEW, "objectives": ["rest", "sleep"], "constraints": ["be quiet"]}
    made = await house.http.post("/api/sessions", json=own)
    assert made.status_code == 201
    # The agent's own constraints are those that it had when the session was made.
    await house.http.put("/api/agents/keeper", json={**AGENT, "constraints": ["be swift"]})
    for same in (own, NEW, {**NEW, "objectives": own["objectives"]}, {**NEW, "constraints": ["be quiet"]}):
        answer = await house.http.post("/api/sessions", json=same)
        assert (answer.status_code, answer.json()["sequence"]) == (200, made.json()["sequence"]), same
    for other, named in (
        ({"objectives": ["rest"]}, "other objectives"),
        ({"objectives": []}, "other objectives"),
        ({"constraints": []}, "other constraints"),
        ({"constraints": ["be quiet", "be loud"]}, "other constraints"),
        ({"objectives": ["run"], "constraints": ["be loud"]}, "other objectives and constraints"),
    ):
        answer = await house.http.post("/api/sessions", json={**NEW, **other})
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict"), other
        assert named in answer.json()["message"]
    anchor = (await house.http.get("/api/sessions/fleet/anchor")).json()
    assert (anchor["objectives"], anchor["constraints"]) == (["rest", "sleep"], ["be careful", "be quiet"])


async def test_name_of_another_agents_session_conflicts(house: House) -> None:
    await house.http.put("/api/agents/other", json={**AGENT, "name": "other"})
    await house.http.post("/api/sessions", json=NEW)
    answer = await house.http.post("/api/sessions", json={**NEW, "agent": "other"})
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")


async def test_session_with_unknown_agent_or_bad_name_is_refused(house: House) -> None:
    answer = await house.http.post("/api/sessions", json={**NEW, "agent": "nobody"})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    for name in ("", "-a", "A", "a.b", "a" * 64, "a\n", 3, None):
        answer = await house.http.post("/api/sessions", json={**NEW, "name": name})
        assert answer.status_code == 422, name
    assert (await house.http.post("/api/sessions?workspace=B!", json=NEW)).status_code == 422


async def test_oversized_anchor_is_refused(house: House) -> None:
    answer = await house.http.post("/api/sessions", json={**NEW, "objectives": ["x" * 1000] * 20})
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert (await house.http.get("/api/sessions/fleet/anchor")).status_code == 404


async def test_workspaces_are_separate(house: House) -> None:
    await house.make_session()
    other = "?workspace=other"
    assert (await house.http.get(f"/api/sessions/fleet/anchor{other}")).status_code == 404
    assert (await house.http.get(f"/api/sessions{other}")).json() == {"data": [], "next": None}
    assert (await house.http.post(f"/api/sessions{other}", json=NEW)).status_code == 404
    await house.http.put(f"/api/agents/keeper{other}", json=AGENT)
    assert (await house.http.post(f"/api/sessions{other}", json=NEW)).status_code == 201


async def test_anchor_shows_its_sequence_and_author(house: House) -> None:
    await house.make_session()
    await house.control(Kind.PAUSED)
    anchor = (await house.http.get("/api/sessions/fleet/anchor")).json()
    assert (anchor["session"], anchor["status"], anchor["schema"]) == ("fleet", "paused", 1)
    assert anchor["record"]["kind"] == "paused"
    assert anchor["record"]["by"] == "test"
    page = await house.bus.last("JOURNAL_0", ["aw.journal.0.default.fleet.p.anchor.*"])
    assert anchor["record"]["sequence"] == page.messages[0].sequence


async def test_history_page_ignores_later_records(house: House) -> None:
    await house.make_session()
    for kind in (Kind.PAUSED, Kind.RESUMED, Kind.PAUSED):
        await house.control(kind)
    said = await house.http.post("/api/sessions/fleet/inputs", json={"content": "hello"})
    assert said.status_code == 202
    changes = await all_pages(house, "/api/sessions/fleet/anchor", history="1")
    assert [each["kind"] for each in changes] == ["created", "paused", "resumed", "paused"]


async def test_history_pages_show_every_change(house: House) -> None:
    await house.make_session()
    session = ScriptedSession(house.bus)
    for run in range(1, 4):
        await session.acquire(f"turn_{run}")
        await session.end(reason=f"run {run}")
    changes = await all_pages(house, "/api/sessions/fleet/anchor", history="1")
    assert [change["kind"] for change in changes] == ["created"] + ["acquired", "turn_ended"] * 3
    assert changes[3]["changes"]["run_id"] == {"from": 1, "to": 2}
    assert changes[3]["changes"]["status"] == {"from": "idle", "to": "active"}
    assert "objectives" not in changes[3]["changes"]
    assert changes[-1]["reason"] == "run 3"
    assert changes[-1]["by"] == "planner-1:test"
    for bad in ("x", "9" * 30, "-1"):
        answer = await house.http.get(f"/api/sessions/fleet/anchor?history=1&cursor={bad}")
        assert answer.status_code == 422


async def test_agents_have_versions(house: House) -> None:
    assert (await house.http.get("/api/agents/keeper")).json()["version"] == 1
    again = await house.http.put("/api/agents/keeper", json=AGENT)
    assert again.json()["version"] == 1
    changed = await house.http.put("/api/agents/keeper", json={**AGENT, "description": "new"})
    assert changed.json()["version"] == 2
    assert (await house.http.get("/api/agents/keeper@1")).json()["description"] == ""
    listed = (await house.http.get("/api/agents")).json()
    assert [agent["name"] for agent in listed["data"]] == ["keeper"]
    for bad in (
        {**AGENT, "name": "x"},
        {**AGENT, "pack": "none"},
        {**AGENT, "grants": ["fly"]},
        {},
        {**AGENT, "x": 1},
    ):
        assert (await house.http.put("/api/agents/keeper", json=bad)).status_code == 422, bad
    assert (await house.http.get("/api/agents/nobody")).status_code == 404
    assert (await house.http.get("/api/agents/keeper@9")).status_code == 404
