"""Schedules over HTTP: made once for each key, shown with what comes next, refused with the way out."""

from __future__ import annotations

import pytest
from anchorwatch.core.schedules.schedule import Definition
from anchorwatch.journal.commit import Committer
from anchorwatch.journal.orders import Asked
from anchorwatch.journal.schedules import ScheduleJournal
from anchorwatch.topology.streams import journal_stream
from anchorwatch.zones import zone_of

from tests.integration.gateway.conftest import House, all_pages
from tests.support.sessions import now_ms

WISH = {"name": "morning", "session": "fleet", "cron": "30 2 * * *", "zone": "Europe/Berlin", "text": "count"}


async def test_schedule_is_created_once_and_shows_the_next_five(house: House) -> None:
    await house.make_session()
    headers = {"Idempotency-Key": "k", "Anchorwatch-By": "Ada"}
    first = await house.http.post("/api/schedules", json=WISH, headers=headers)
    assert first.status_code == 201, first.text
    made = first.json()
    assert (made["by"], made["state"], made["replayed"]) == ("Ada", "active", False)
    assert len(made["next"]) == 5
    assert all(each["slot"].endswith("T02:30") for each in made["next"])
    assert {each["at"][-6:] for each in made["next"]} <= {"+01:00", "+02:00"}
    again = (await house.http.post("/api/schedules", json=WISH, headers=headers)).json()
    assert (again["replayed"], again["sequence"]) == (True, made["sequence"])
    other = await house.http.post("/api/schedules", json={**WISH, "text": "no"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
    taken = await house.http.post("/api/schedules", json=WISH)
    assert (taken.status_code, taken.json()["code"]) == (409, "conflict")
    assert (await house.http.get("/api/schedules/morning")).json()["sequence"] == made["sequence"]
    listed = (await house.http.get("/api/schedules", params={"session": "fleet"})).json()["data"]
    assert [each["name"] for each in listed] == ["morning"]
    nowhere = await house.http.get("/api/schedules", params={"session": "nope"})
    assert (nowhere.status_code, nowhere.json()["code"]) == (404, "not_found")
    await house.make_session("other")
    assert (await house.http.get("/api/schedules", params={"session": "other"})).json()["data"] == []


async def test_schedules_are_paged_by_name(house: House) -> None:
    await house.make_session()
    names = ["a", "b", "c", "d", "e"]
    for name in ("c", "a", "e", "b", "d"):
        assert (await house.http.post("/api/schedules", json={**WISH, "name": name})).status_code == 201
    assert [each["name"] for each in await all_pages(house, "/api/schedules")] == names
    found = await all_pages(house, "/api/schedules", order="desc", session="fleet")
    assert [each["name"] for each in found] == names[::-1]


async def test_deleted_schedule_frees_its_name(house: House) -> None:
    await house.make_session()
    await house.http.post("/api/schedules", json=WISH)
    path = "/api/schedules/morning"
    paused = await house.http.post(f"{path}/pause", json={"reason": "quiet"})
    assert (paused.json()["state"], paused.json()["reason"]) == ("paused", "quiet")
    refused = await house.http.post(f"{path}/pause", json={})
    assert (refused.status_code, refused.json()["code"]) == (409, "refused")
    assert "resume" in refused.json()["hint"]
    assert (await house.http.post(f"{path}/resume")).json()["state"] == "active"
    for _ in range(2):
        gone = await house.http.delete(path, headers={"Idempotency-Key": "d"})
        assert (gone.status_code, gone.json()["state"], gone.json()["next"]) == (200, "deleted", [])
    assert (await house.http.get("/api/schedules")).json()["data"] == []
    assert (await house.http.post("/api/schedules", json=WISH)).status_code == 201


async def test_occurrence_before_a_pause_is_shown_as_owed(house: House) -> None:
    await house.make_session()
    journal = ScheduleJournal(house.bus, Committer(house.bus, journal_stream()), "test")
    definition = Definition(
        workspace="default", name="hourly", session="fleet", cron="0 * * * *", zone="UTC", text="count"
    )
    began_ms = now_ms() - 3 * 3_600_000
    await journal.make(definition, zone_of("UTC"), Asked("c-made", "ada", "b"), began_ms)
    assert (await house.http.get("/api/schedules/hourly")).json()["owed"] is None
    paused = (await house.http.post("/api/schedules/hourly/pause", json={})).json()
    assert paused["owed"]["missed"] == 2
    assert paused["owed"]["at"].startswith(paused["owed"]["slot"])
    (listed,) = (await house.http.get("/api/schedules")).json()["data"]
    assert listed["owed"] == paused["owed"]


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"cron": "0 9 * *"}, 422, "five fields"),
        ({"cron": "0 9 31 2 *"}, 422, "day-of-month"),
        ({"cron": "*/90 * * * *"}, 422, "at most 59"),
        ({"zone": "Europe/Berln"}, 422, "Europe/Berlin"),
        ({"zone": "localtime"}, 422, "every machine"),
        ({"session": "nobody"}, 404, "nobody"),
        ({"missed": "two"}, 422, "missed"),
        ({"name": "Not a name"}, 422, "name"),
        ({"when": "now"}, 422, "when"),
    ],
)
async def test_invalid_schedule_is_refused_with_a_hint(
    house: House, change: dict[str, str], status: int, words: str
) -> None:
    await house.make_session()
    answer = await house.http.post("/api/schedules", json={**WISH, **change})
    assert answer.status_code == status, answer.text
    assert words in answer.text
    assert (await house.http.get("/api/schedules")).json()["data"] == []


async def test_unknown_schedule_is_not_found(house: House) -> None:
    for method, path in (("GET", ""), ("POST", "/pause"), ("POST", "/resume"), ("DELETE", "")):
        answer = await house.http.request(method, f"/api/schedules/nobody{path}")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert (await house.http.get("/api/schedules/Not%20one")).status_code == 422
