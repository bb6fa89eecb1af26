"""What holds a session is said with it: a kill switch, a pause, its limits; who, since or until when, and why."""

from __future__ import annotations

from typing import Any

from anchorwatch.bus.port import Expect
from anchorwatch.core.anchor import Pace
from anchorwatch.core.session.commands import Acquire
from anchorwatch.core.session.pacing import HOUR_MS, Rate
from anchorwatch.core.times import from_iso, iso
from anchorwatch.journal.commit import Committer
from anchorwatch.journal.paces import PaceJournal
from anchorwatch.topology.streams import journal_stream

from tests.integration.gateway.conftest import AGENT, House
from tests.support.sessions import AGENT as AT_VERSION
from tests.support.sessions import PLANNER, ScriptedSession, now_ms

ADA = {"Anchorwatch-By": "ada"}


async def held(house: House) -> list[Any]:
    """As the session itself says it, and the list of all does."""
    one = (await house.http.get("/api/sessions/fleet")).json()["held"]
    (listed,) = (await house.http.get("/api/sessions")).json()["data"]
    assert listed["held"] == one
    return list(one)


async def switch(house: House, *, on: bool, **of: str) -> None:
    body = {"on": on, "reason": "it smells", **of}
    answer = await house.http.post("/api/kill-switches", json=body, headers=ADA)
    assert answer.status_code == 200, answer.text


async def test_session_shows_pause_and_kill_switches_that_hold_it(house: House) -> None:
    await house.make_session()
    assert await held(house) == []
    answer = await house.http.post(
        "/api/sessions/fleet/pause", json={"reason": "it rains"}, headers={"Anchorwatch-By": "bob"}
    )
    (pause,) = await held(house)
    assert (pause["by"], pause["who"], pause["why"]) == ("pause", "bob", "it rains")
    assert pause["since"] == answer.json()["at"]
    await house.http.post("/api/sessions/fleet/objectives", json={"change": "add", "items": ["dry feet"]})
    assert await held(house) == [pause], "another order does not make it another's"
    await switch(house, on=True, scope="agent", name="keeper")
    await switch(house, on=True, scope="workspace")
    await switch(house, on=True, scope="mesh")
    response = await held(house)
    assert [(each["by"], each["of"], each["who"], each["why"]) for each in response] == [
        ("kill_switch", "agent", "ada", "it smells"),
        ("kill_switch", "mesh", "ada", "it smells"),
        ("kill_switch", "workspace", "ada", "it smells"),
        ("pause", "session", "bob", "it rains"),
    ]
    metrics = (await house.http.get("/metrics")).text
    assert 'anchorwatch_kill_switches_on{scope="agent"} 1.0' in metrics
    assert 'anchorwatch_kill_switches_on{scope="session"} 0.0' in metrics
    assert "anchorwatch_inputs_refused 0.0" in metrics
    await switch(house, on=False, scope="agent", name="keeper")
    assert 'anchorwatch_kill_switches_on{scope="mesh"} 1.0' in metrics
    await switch(house, on=False, scope="workspace")
    await switch(house, on=False, scope="mesh")
    await house.http.post("/api/sessions/fleet/resume")
    assert await held(house) == []


async def test_receipts_name_the_kill_switches_that_hold(house: House) -> None:
    await house.make_session()
    asks: tuple[tuple[str, dict[str, Any]], ...] = (
        ("sessions/fleet/inputs", {"content": "look"}),
        ("sessions/fleet/trigger", {}),
        ("sessions/fleet/pause", {}),
        ("sessions/fleet/resume", {}),
        ("sessions/fleet/reset", {"confirmation": None}),
        ("events", {"source": "fleet", "type": "instance.dead"}),
    )

    async def response() -> list[list[str]]:
        answers = [await house.http.post(f"/api/{path}", json=body) for path, body in asks]
        assert all(each.is_success for each in answers), [each.text for each in answers]
        return [[switch["scope"] for switch in each.json()["kill_switches"]] for each in answers]

    assert await response() == [[]] * 6
    await switch(house, on=True, scope="session", name="fleet")
    await switch(house, on=True, scope="agent", name="keeper")
    # An event that no agent asked for goes to no session.
    assert [set(each) for each in await response()] == [{"session", "agent"}] * 5 + [set()]
    subscribing = {**AGENT, "subscriptions": ["fleet.instance.>"]}
    assert (await house.http.put("/api/agents/keeper", json=subscribing)).is_success
    assert [set(each) for each in await response()] == [{"session", "agent"}] * 6
    await switch(house, on=True, scope="workspace")
    await switch(house, on=True, scope="mesh")
    assert [set(each) for each in await response()] == [{"session", "agent", "workspace", "mesh"}] * 6
    receipt = (await house.http.post("/api/sessions/fleet/inputs", json={"content": "look"})).json()
    listed = (await house.http.get("/api/kill-switches")).json()["data"]
    key = lambda each: each["scope"]  # noqa: E731
    assert sorted(receipt["kill_switches"], key=key) == sorted(listed, key=key)


async def test_limit_shows_its_end_and_delays_due_times(house: House) -> None:
    limits = {"min_interval_s": 3600, "agent_turns_per_hour": 1, "burst": 1}
    answer = await house.http.put("/api/agents/keeper", json={**AGENT, "limits": limits})
    assert answer.status_code == 200, answer.text
    await house.make_session()
    session = ScriptedSession(house.bus)
    began_ms = now_ms()
    pace = Pace(started_at=iso(began_ms))
    await session.do(Acquire("turn_1", AT_VERSION, PLANNER, 0, 0, began_ms, pace))
    await session.end()
    for priority in ("P1", "P0"):
        body = {"content": "look", "priority": priority}
        accepted = await house.http.post("/api/sessions/fleet/inputs", json=body)
    until = iso(began_ms + HOUR_MS)
    (limit,) = await held(house)
    assert (limit["by"], limit["why"], limit["until"]) == ("rate_limit", "min_interval", until)
    paces = PaceJournal(house.bus, journal_stream(), "test")
    account = await paces.read(session.ref, "keeper", Rate(turns_per_hour=1))
    write = paces.spend(account, session.ref, began_ms)
    await Committer(house.bus, journal_stream()).commit([write], Expect(account.subject, 0))
    (shared, _) = await held(house)
    assert (shared["by"], shared["why"], shared["until"]) == ("rate_limit", "agent_turns_per_hour", until)
    wakes = (await house.http.get("/api/sessions/fleet/wakes", params={"kind": "message"})).json()["data"]
    assert wakes[0]["due_at"] == until
    soon_ms = from_iso(accepted.json()["accepted_at"]) + 60_000
    assert from_iso(wakes[1]["due_at"]) < soon_ms, "a person's urgent word waits for no limit"


async def test_session_without_progress_shows_its_hold(house: House) -> None:
    await house.make_session()
    session = ScriptedSession(house.bus)
    for _ in range(3):
        await session.acquire()
        await session.end("failed", "nobody answers")
    anchor = (await house.http.get("/api/sessions/fleet/anchor")).json()
    (slow,) = await held(house)
    assert (slow["by"], slow["why"]) == ("no_progress", "3 turns in a row")
    assert slow["since"] == anchor["last_run_timestamp"]
