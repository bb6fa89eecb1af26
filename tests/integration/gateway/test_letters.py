"""Dead letters over HTTP: what people see of a message that could not be handled, and what they order."""

from __future__ import annotations

from typing import Any

import pytest
from anchorwatch.bus.port import Message
from anchorwatch.core.letters import Address, Fault, failed
from anchorwatch.core.names import SessionRef
from anchorwatch.journal.inputs import input_id
from anchorwatch.journal.letters import LetterJournal
from anchorwatch.topology.streams import EVENTS, journal_stream
from anchorwatch.topology.subjects import MESH, MESH_SWITCH, SessionSubjects

from tests.integration.gateway.conftest import AGENT, House
from tests.support.waiting import eventually

SUBJECT = "aw.event.default.fleet.instance.dead"
LIST = "/api/dead-letters"


async def poison(house: House, id_: str) -> str:
    """An event whose input can neither be accepted nor found; its letter's id."""
    register = input_id("ev", "message", SUBJECT, id_)
    await house.bus.publish(
        Message(SessionSubjects(SessionRef("default", "fleet")).input(register), b"noise")
    )
    ack = await house.bus.publish(Message(SUBJECT, b'{"instance": "w-1"}', message_id=id_))
    return f"observer-events-{ack.sequence}"


async def mend(house: House, id_: str) -> None:
    register = input_id("ev", "message", SUBJECT, id_)
    await house.bus.purge(journal_stream(), SessionSubjects(SessionRef("default", "fleet")).input(register))


async def get(house: House, path: str, **params: str) -> Any:
    answer = await house.http.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def until_state(house: House, letter: str, state: str) -> dict[str, Any]:
    async def there() -> bool:
        answer = await house.http.get(f"{LIST}/{letter}")
        return answer.status_code == 200 and answer.json()["state"] == state

    await eventually(there, 60, f"{letter} {state}")
    found: dict[str, Any] = await get(house, f"{LIST}/{letter}")
    return found


@pytest.fixture
async def observed(house: House) -> House:
    """With a session that wants events of the fleet, and an observer that gives up at once."""
    await house.http.put("/api/agents/keeper", json={**AGENT, "subscriptions": ["fleet.>"]})
    await house.make_session()
    await house.services.start("observer", dead_letter_tries=1)
    return house


async def test_letter_shows_message_place_and_error(observed: House) -> None:
    letter = await until_state(observed, await poison(observed, "bad"), "open")
    assert letter["content"] == {"instance": "w-1"}
    assert (letter["service"], letter["handler"], letter["tries"], letter["gone"]) == (
        "observer",
        "event",
        1,
        False,
    )
    assert (letter["message"]["stream"], letter["message"]["subject"]) == (EVENTS, SUBJECT)
    assert letter["error"]["code"] == "damaged"
    (listed,) = (await get(observed, LIST, state="open"))["data"]
    assert listed == {name: value for name, value in letter.items() if name not in ("content", "gone")}
    text = (await observed.http.get("/metrics")).text
    assert 'anchorwatch_dead_letters{service="observer",state="open"} 1.0' in text
    assert 'anchorwatch_dead_letters{service="planner",state="open"} 0.0' in text


async def test_retry_handles_the_message_once_per_key(observed: House) -> None:
    letter = await poison(observed, "bad")
    await until_state(observed, letter, "open")
    await mend(observed, "bad")
    for _ in range(2):
        response = await observed.http.post(f"{LIST}/{letter}/retry", headers={"Idempotency-Key": "k-1"})
        assert (response.status_code, response.headers["Idempotency-Key"]) == (202, "k-1"), response.text
    done = await until_state(observed, letter, "done")
    assert [(action["verb"], action["by"]) for action in done["actions"]] == [("retry", "a person")]
    assert await observed.inputs_in_journal() == 1
    other = await observed.http.post(f"{LIST}/{letter}/drop", headers={"Idempotency-Key": "k-1"})
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
    late = await observed.http.post(f"{LIST}/{letter}/drop", headers={"Idempotency-Key": "k-2"})
    assert (late.status_code, late.json()["code"]) == (409, "refused")


async def test_second_series_of_failures_reopens_the_letter(observed: House) -> None:
    letter = await poison(observed, "bad")
    await until_state(observed, letter, "open")
    await observed.http.post(f"{LIST}/{letter}/retry")

    async def again() -> bool:
        found = await get(observed, f"{LIST}/{letter}")
        return bool(found["state"] == "open" and found["openings"] == 2)

    await eventually(again)


async def test_drop_is_recorded_once_with_caller_and_note(observed: House) -> None:
    letter = await poison(observed, "bad")
    await until_state(observed, letter, "open")
    keyed = {"Idempotency-Key": "k"}
    for _ in range(2):
        response = await observed.http.post(
            f"{LIST}/{letter}/drop", json={"note": "an old test"}, headers=keyed
        )
        assert (response.status_code, response.json()["state"]) == (200, "dropped"), response.text
    (action,) = response.json()["actions"]
    assert (action["verb"], action["by"], action["note"]) == ("drop", "a person", "an old test")
    again = await observed.http.post(f"{LIST}/{letter}/drop", json={"note": "an old test"})
    assert (again.status_code, again.json()["code"]) == (409, "refused")
    retried = await observed.http.post(f"{LIST}/{letter}/retry")
    assert retried.status_code == 409
    assert "dropped, by a person" in retried.json()["message"]


async def test_gone_message_can_be_dropped_and_not_retried(observed: House) -> None:
    letter = await poison(observed, "bad")
    await until_state(observed, letter, "open")
    await observed.bus.purge(EVENTS, SUBJECT)
    shown = await get(observed, f"{LIST}/{letter}")
    assert (shown["content"], shown["gone"]) == (None, True)
    retried = await observed.http.post(f"{LIST}/{letter}/retry")
    assert (retried.status_code, retried.json()["code"]) == (404, "not_found")
    assert "drop" in retried.json()["hint"]
    assert (await observed.http.post(f"{LIST}/{letter}/drop")).status_code == 200


async def test_letters_are_paged_and_filtered(observed: House) -> None:
    for n in range(5):
        await until_state(observed, await poison(observed, f"bad-{n}"), "open")
    found, cursor = [], None
    while True:
        page = await get(observed, LIST, limit="2", order="desc", **({"cursor": cursor} if cursor else {}))
        found += [letter["id"] for letter in page["data"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert len(found) == len(set(found)) == 5
    assert (await get(observed, LIST, order="asc"))["data"][0]["id"] == found[-1]
    assert (await get(observed, LIST, service="planner"))["data"] == []
    assert (await get(observed, LIST, workspace="elsewhere"))["data"] == []
    for path, status in (
        (f"{LIST}/observer-events-99", 404),
        (f"{LIST}?state=odd", 422),
        (f"{LIST}?cursor=x", 422),
    ):
        assert (await observed.http.get(path)).status_code == status
    assert (await observed.http.post(f"{LIST}/no-such/retry")).status_code == 404


async def test_letter_of_the_mesh_is_in_every_workspace(house: House) -> None:
    """A record of the whole mesh has no workspace that a request could name."""
    turned = await house.http.post("/api/kill-switches", json={"scope": "mesh", "on": True})
    (record,) = (await house.bus.last(journal_stream(), [MESH_SWITCH])).messages
    assert turned.json()["sequence"] == record.sequence
    address = Address(
        MESH, "notifier", f"journal0-{record.sequence}", "record", journal_stream(),
        record.sequence, record.subject, record.time_ms,
    )  # fmt: skip
    journal = LetterJournal(house.bus, "notifier-1")
    await journal.change(address, lambda _: failed(None, address, Fault("x", "y"), 5, 1), 5)
    assert [each["id"] for each in (await get(house, LIST))["data"]] == [address.letter_id]
    answer = await house.http.post(f"{LIST}/{address.letter_id}/retry")
    assert (answer.status_code, answer.json()["state"]) == (202, "retried")
