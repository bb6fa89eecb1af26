"""Orders over HTTP: once for each key, with who, on the session as it was shown."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from anchorwatch.core.effect.state import Claimed, Outcome, Owner, Released
from anchorwatch.core.emergency import Emergency
from anchorwatch.core.session.commands import Acquire, NoteEmergency
from anchorwatch.core.times import iso

from tests.integration.gateway.conftest import House
from tests.support.sessions import PLANNER, ScriptedSession, now_ms


async def ask(house: House, verb: str, body: Any = None, key: str | None = None, status: int = 200) -> Any:
    headers = {"Idempotency-Key": key} if key else {}
    answer = await house.http.post(f"/api/sessions/fleet/{verb}", json=body, headers=headers)
    assert answer.status_code == status, answer.text
    return answer.json()


async def anchor(house: House) -> Any:
    return (await house.http.get("/api/sessions/fleet/anchor")).json()


def scripted(house: House) -> ScriptedSession:
    return ScriptedSession(house.bus, "fleet")


async def test_pause_and_resume_are_recorded_once_with_caller(house: House) -> None:
    await house.make_session()
    first = await ask(house, "pause", {"reason": "it rains"}, key="k")
    again = await ask(house, "pause", {"reason": "it rains"}, key="k")
    assert (first["kind"], first["by"], first["session_status"]) == ("paused", "a person", "paused")
    assert again == {**first, "replayed": True}
    record = (await anchor(house))["record"]
    assert (record["kind"], record["by"], record["reason"]) == ("paused", "a person", "it rains")
    conflict = await ask(house, "resume", {"reason": "it rains"}, key="k", status=409)
    assert conflict["code"] == "idempotency_conflict"
    assert (await ask(house, "resume"))["session_status"] == "idle"
    refused = await ask(house, "resume", status=409)
    assert refused["code"] == "refused"


async def test_cancel_lists_the_calls_that_may_have_run(house: House) -> None:
    await house.make_session()
    session = scripted(house)
    await session.acquire()
    waiting, claimed = await session.commands(("fire", {"item": "a"}), ("fire", {"item": "b"}))
    await session.record(claimed, Claimed(Owner("executor-1", "aa"), 1, "key"))
    for odd in (True, 1.0, None, ""):
        await ask(house, "cancel", {"turn": odd}, status=422)
    assert (await ask(house, "cancel", {"turn": 7}, status=409))["code"] == "turn_not_active"
    late = await ask(house, "cancel", {"turn": "turn_other"}, status=409)
    assert late["code"] == "turn_not_active"
    response = await ask(house, "cancel", {"turn": "1", "reason": "wrong one"}, key="k")
    assert response["never_start"] == [f"fleet/{waiting.call}"]
    assert [each["call"] for each in response["too_late"]] == [f"fleet/{claimed.call}"]
    assert "may still run" in response["too_late"][0]["note"]
    for command in (waiting, claimed):
        await session.record(command, Outcome(command.call, "fire", "succeeded", "", {}))
    again = await ask(house, "cancel", {"turn": "1", "reason": "wrong one"}, key="k")
    assert again == {**response, "replayed": True}, "also once they have their outcomes"
    now = await anchor(house)
    assert (now["status"], now["last_run_outcome"], now["fence"]["run"]) == ("idle", "cancelled", 2)
    assert (await ask(house, "cancel", {"turn": "turn_1"}, status=409))["code"] == "turn_not_active"
    await session.acquire()
    assert (await ask(house, "cancel", {"turn": 2}))["kind"] == "cancelled"


@pytest.mark.parametrize("verb", ["cancel", "reset", "delete"])
async def test_read_is_never_listed_as_not_started(house: House, verb: str) -> None:
    """A read runs without a claim, so nobody can tell whether it began before the fence."""
    await house.make_session()
    session = scripted(house)
    await session.acquire()
    ended, running, waiting = await session.commands(
        ("look", {"item": "a"}), ("look", {"item": "b"}), ("fire", {"item": "c"})
    )
    await session.record(ended, Outcome(ended.call, "look", "succeeded", "", {}))
    body = {"cancel": {"turn": "1"}, "reset": {"confirmation": None}, "delete": {}}[verb]
    response = await ask(house, verb, body, key="k")
    assert response["never_start"] == [f"fleet/{waiting.call}"]
    assert [each["call"] for each in response["too_late"]] == [f"fleet/{running.call}"]
    await session.record(running, Outcome(running.call, "look", "succeeded", "", {}))
    # An executor that claims after the fence reads the fence, and refuses.
    await session.record(waiting, Claimed(Owner("executor-1", "aa"), 1, "key"))
    assert await ask(house, verb, body, key="k") == {**response, "replayed": True}


async def test_claim_given_back_after_the_fence_stays_too_late(house: House) -> None:
    await house.make_session()
    session = scripted(house)
    await session.acquire()
    (command,) = await session.commands(("fire", {"item": "a"}))
    owner = Owner("executor-1", "aa")
    await session.record(command, Claimed(owner, 1, "key"))
    response = await ask(house, "cancel", {"turn": "1"}, key="k")
    assert [each["call"] for each in response["too_late"]] == [f"fleet/{command.call}"]
    await session.record(command, Released(owner, "the session is paused"))
    assert await ask(house, "cancel", {"turn": "1"}, key="k") == {**response, "replayed": True}


async def test_steer_names_its_turn_and_a_late_one_is_refused(house: House) -> None:
    await house.make_session()
    session = scripted(house)
    await session.acquire()
    response = await ask(house, "steer", {"turn": "turn_1", "text": "not that one"})
    assert response["kind"] == "steered"
    late = await ask(house, "steer", {"turn": "turn_7", "text": "stop"}, status=409)
    assert late["code"] == "turn_not_active"


async def test_directives_are_changed_word_for_word(house: House) -> None:
    await house.make_session()
    await ask(house, "objectives", {"change": "add", "items": ["be kind"]})
    await ask(house, "constraints", {"change": "remove", "items": ["be careful"]})
    now = await anchor(house)
    assert (now["objectives"], now["constraints"]) == (["500 proofs per hour", "be kind"], [])
    missing = await ask(house, "constraints", {"change": "remove", "items": ["be careful"]}, status=404)
    assert "lists them" in missing["hint"]
    await ask(house, "objectives", {"change": "set", "items": ["x" * 2000]}, status=422)


async def test_emergency_is_listed_until_a_person_ends_it(house: House) -> None:
    await house.make_session()
    session = scripted(house)
    await session.acquire()
    await session.do(NoteEmergency(PLANNER, Emergency("dead", "all are dead"), 5_000, now_ms()))
    ended = await session.end("unresolved")
    (row,) = (await house.http.get("/api/sessions", params={"at_least": ended})).json()["data"]
    opened = {"kind": "dead", "what": "all are dead", "since": iso(5_000), "last_seen_at": iso(5_000)}
    assert row["emergency"] == opened
    assert (await house.http.get("/api/sessions/fleet")).json()["emergency"] == opened
    await ask(house, "end-emergency", {"reason": " "}, status=422)
    response = await ask(house, "end-emergency", {"reason": "the rack is sold"}, key="k")
    assert (response["kind"], response["more"]["emergency"]) == ("emergency_ended", opened)
    assert (await anchor(house))["emergency"] is None
    again = await ask(house, "end-emergency", {"reason": "the rack is sold"}, key="k")
    assert again == {**response, "replayed": True}
    assert (await ask(house, "end-emergency", {"reason": "again"}, status=409))["code"] == "refused"
    entries = (await house.http.get("/api/sessions/fleet/timeline")).json()["data"]
    texts = [(each["what"], each["why"]) for each in entries]
    assert ("emergency raised", "all are dead") in texts
    assert ("emergency ended by a person: all are dead", "the rack is sold") in texts


async def test_reset_does_what_was_previewed_or_nothing(house: House) -> None:
    await house.make_session()
    session = scripted(house)
    await session.acquire()
    await session.end()
    old = (await house.http.post("/api/sessions/fleet/inputs", json={"content": "old"})).json()
    shown = (await house.http.get("/api/sessions/fleet/reset")).json()
    assert shown["archived"]["turns"] == 1
    assert shown["disposed"]["count"] == 1
    assert shown["kept"]["objectives"] == ["500 proofs per hour"]
    new = (await house.http.post("/api/sessions/fleet/inputs", json={"content": "new"})).json()
    response = await ask(house, "reset", {"confirmation": shown["confirmation"]})
    assert response["more"]["superseded"]["inputs"] == [old["input_id"]]
    assert response["canary"] == "canary-1"
    state = await session.load()
    assert [each.input_id for each in state.pending] == [new["input_id"], "canary-1"]
    again = await ask(house, "reset", {"confirmation": shown["confirmation"]}, status=409)
    assert again["code"] == "changed_since"
    assert (await ask(house, "reset", {"confirmation": "nonsense"}, status=422))["code"] == "bad_input"
    await ask(house, "undo-reset")
    assert [past.run_id for past in (await session.load()).history] == [1]


async def test_wakes_are_cleared_up_to_a_sequence(house: House) -> None:
    await house.make_session()
    first = (await house.http.post("/api/sessions/fleet/inputs", json={"content": "one"})).json()
    second = (await house.http.post("/api/sessions/fleet/inputs", json={"content": "two"})).json()
    await ask(house, "wakes/clear", {"through": first["sequence"]})
    assert [each.input_id for each in (await scripted(house).load()).pending] == [second["input_id"]]
    await ask(house, "wakes/clear")
    assert (await ask(house, "wakes/clear", status=409))["message"] == "no inputs are pending"


async def test_deleted_session_refuses_orders_and_keeps_its_name(house: House) -> None:
    await house.make_session()
    assert (await ask(house, "delete"))["session_status"] == "deleted"
    for verb in ("pause", "delete", "undo-reset"):
        assert (await ask(house, verb, status=410))["code"] == "session_deleted"
    assert (await ask(house, "reset", {"confirmation": None}, status=410))["code"] == "session_deleted"


async def test_kill_switch_needs_a_target_and_shows_its_caller(house: House) -> None:
    await house.make_session()
    headers = {"Idempotency-Key": "k"}
    body = {"scope": "session", "name": "fleet", "on": True, "reason": "smoke"}
    first = (await house.http.post("/api/kill-switches", json=body, headers=headers)).json()
    assert (first["on"], first["by"], first["replayed"]) == (True, "a person", False)
    again = (await house.http.post("/api/kill-switches", json=body, headers=headers)).json()
    assert again == {**first, "replayed": True}
    listed = (await house.http.get("/api/kill-switches")).json()["data"]
    assert [(each["scope"], each["name"], each["on"], each["reason"]) for each in listed] == [
        ("session", "fleet", True, "smoke")
    ]
    for wrong, status in (
        ({"scope": "session", "name": "nobody", "on": True}, 404),
        ({"scope": "agent", "name": "nobody", "on": True}, 404),
        ({"scope": "agent", "on": True}, 422),
        ({"scope": "workspace", "name": "x", "on": True}, 422),
        ({"scope": "session", "name": "fleet", "on": True}, 409),
    ):
        answer = await house.http.post("/api/kill-switches", json=wrong)
        assert answer.status_code == status, answer.text


async def test_order_records_the_name_of_its_caller(house: House) -> None:
    await house.make_session()
    paused = await house.http.post(
        "/api/sessions/fleet/pause",
        json={},
        headers={b"Anchorwatch-By": "Zoë O-Neil".encode(), b"Idempotency-Key": b"k"},
    )
    assert (paused.status_code, paused.json()["by"]) == (200, "Zoë O-Neil")
    again = await house.http.post(
        "/api/sessions/fleet/pause", json={}, headers={"Anchorwatch-By": "bob", "Idempotency-Key": "k"}
    )
    assert (again.json()["by"], again.json()["replayed"]) == ("Zoë O-Neil", True), "the first one gave it"
    for odd in (b"x" * 65, b"bob\tadmin", b"a,b", b"\xff"):
        refused = await house.http.post("/api/sessions/fleet/resume", headers={b"Anchorwatch-By": odd})
        assert (refused.status_code, refused.json()["code"]) == (400, "bad_request")
    assert (await house.http.get("/api/sessions/fleet/anchor")).json()["status"] == "paused"


async def test_concurrent_identical_orders_run_once(
    house: House,
) -> None:
    await house.make_session()
    orders: list[tuple[str, Any]] = [
        ("sessions/fleet/constraints", {"change": "add", "items": ["{n}"]}),
        ("sessions/fleet/constraints", {"change": "remove", "items": ["{n}"]}),
        ("sessions/fleet/pause", {"reason": "{n}"}),
        ("sessions/fleet/resume", {"reason": "{n}"}),
        ("kill-switches", {"scope": "session", "name": "fleet", "on": True, "reason": "{n}"}),
        ("kill-switches", {"scope": "session", "name": "fleet", "on": False, "reason": "{n}"}),
        ("schedules", {"name": "n{n}", "session": "fleet", "cron": "0 9 * * *", "zone": "UTC"}),
        ("schedules/n{n}/pause", {}),
    ]
    for n in range(6):
        for number, (path, wish) in enumerate(orders):
            body = {
                name: [str(n)]
                if name == "items"
                else str(value).format(n=n)
                if isinstance(value, str)
                else value
                for name, value in wish.items()
            }
            headers = {"Idempotency-Key": f"k-{n}-{number}"}
            answers = await asyncio.gather(*(
                house.http.post(f"/api/{path.format(n=n)}", json=body, headers=headers) for _ in range(4)
            ))  # fmt: skip
            assert {each.status_code for each in answers} <= {200, 201}, [each.text for each in answers]
            assert sorted(each.json()["replayed"] for each in answers) == [False, True, True, True]


async def test_repeated_order_is_answered_after_deletion(house: House) -> None:
    await house.make_session()
    asked: list[tuple[str, Any, str]] = [
        ("sessions/fleet/inputs", {"content": "hello"}, "i"),
        ("sessions/fleet/trigger", {"reason": "now"}, "t"),
        ("sessions/fleet/pause", {"reason": "why"}, "p"),
        ("schedules", {"name": "n", "session": "fleet", "cron": "0 9 * * *", "zone": "UTC"}, "s"),
        ("kill-switches", {"scope": "session", "name": "fleet", "on": True}, "k"),
        ("sessions/fleet/delete", {"reason": "over"}, "d"),
    ]

    async def post(path: str, body: Any, key: str) -> Any:
        return await house.http.post(f"/api/{path}", json=body, headers={"Idempotency-Key": key})

    first = [await post(*each) for each in asked]
    assert {each.status_code for each in first} <= {200, 201, 202}, [each.text for each in first]
    for before, each in zip(first, asked, strict=True):
        again = await post(*each)
        assert again.is_success, again.text
        now = ("replayed", "session_status", "kill_switches")
        same = {name: value for name, value in before.json().items() if name not in now}
        assert again.json()["replayed"]
        assert same.items() <= again.json().items()
        if "/" in each[0]:
            other = await post(each[0], {**each[1], "reason": "another"}, each[2])
            assert other.status_code in (409, 422), other.text
        fresh = await post(each[0], each[1], f"{each[2]}-2")
        assert (fresh.status_code, fresh.json()["code"]) == (410, "session_deleted"), fresh.text
    held = (await house.http.get("/api/sessions/fleet")).json()["held"]
    assert held == [], "nothing holds what is no more"
    off = await post("kill-switches", {"scope": "session", "name": "fleet", "on": False}, "off")
    assert off.status_code == 200, off.text


async def test_labelled_lines_have_a_limit_and_are_withdrawn(house: House) -> None:
    await house.make_session()

    async def say(*lines: str, status: int = 202, key: str | None = None) -> Any:
        text = "\n".join(f"CRITICAL: {line}" for line in lines)
        return await ask(house, "inputs", {"content": text}, key=key, status=status)

    async def listed() -> list[Any]:
        found: list[Any] = (await house.http.get("/api/sessions/fleet/critical")).json()["lines"]
        return found

    many = [f"rule {n}: {'never restart a worker that runs ' * 4}" for n in range(220)]
    refused = await say(*many, status=413)
    assert "220 lines that begin with CRITICAL:" in refused["message"]
    assert "the limit is" in refused["message"]
    first = await say(*many[:60], key="k")
    # Two at once cannot exceed the limit together, and a repeated request has its receipt.
    answers = await asyncio.gather(
        *(
            house.http.post(
                "/api/sessions/fleet/inputs", json={"content": f"CRITICAL: {n} {'and so on ' * 400}"}
            )
            for n in range(3)
        )
    )
    assert sorted(each.status_code for each in answers) == [202, 413, 413]
    assert (await say(*many[:60], key="k"))["sequence"] == first["sequence"]
    session = scripted(house)
    held = (await listed())[0]
    assert held["in_prompt"] is False
    waits = await ask(house, "critical", {"line": held["text"]}, status=409)
    assert "waits for a turn" in waits["message"]
    state = await session.load()
    await session.do(Acquire("turn_1", "keeper@1", PLANNER, state.read_through, state.read_through, now_ms()))
    too_long = {"turn": "1", "text": f"CRITICAL: {'and so on ' * 1_400}"}
    assert (await ask(house, "steer", too_long, status=413))["code"] == "too_large"
    lines = await listed()
    assert (len(lines), lines[0]["sequence"], lines[0]["in_prompt"]) == (61, first["sequence"], True)
    assert lines[0]["by"]
    long = next(each["text"] for each in lines if "and so on" in each["text"])
    told = await ask(house, "critical", {"line": long, "reason": "old"}, key="w")
    assert (told["kind"], told["more"]["which"]) == ("directives", "critical")
    assert (await ask(house, "critical", {"line": long, "reason": "old"}, key="w"))["replayed"] is True
    await ask(house, "critical", {"line": long}, status=404)
    body = {"line": lines[0]["text"], "text": "CRITICAL: rule 0 is shorter"}
    await ask(house, "critical", body)
    await ask(house, "critical", {"line": lines[1]["text"], "text": too_long["text"]}, status=413)
    assert [each["text"] for each in await listed()][:2] == [body["text"], lines[1]["text"]]
    entries = (await house.http.get("/api/sessions/fleet/timeline")).json()["data"]
    whats = [each["what"] for each in entries if each["kind"] == "directives"]
    assert whats[0].startswith("labelled line withdrawn: CRITICAL: ")
    assert whats[1].startswith("labelled line corrected: CRITICAL: rule 0")


async def test_constraint_says_whether_it_is_enforced(house: House) -> None:
    await house.make_session()
    rule = "command.tool != 'launch' || observation.instances < 2"

    async def add(text: str, status: int = 200, **more: str) -> Any:
        return await ask(house, "constraints", {"change": "add", "items": [text], **more}, status=status)

    # The agent's model is the default one, which is `rules`.
    (note,) = (await add("be quiet"))["notes"]
    assert note.startswith("not read by rules")
    ruled = await add("at most two", rule=rule)
    assert (ruled["notes"], ruled["more"]["rule"]) == ([], rule)
    assert (await anchor(house))["constraint_rules"] == {"at most two": rule}
    for odd, words in (
        ("observation.x <", "not valid CEL"),
        ("instances < 2", "cannot be evaluated"),
        ("1 + 1", "must be true or false"),
    ):
        assert words in (await add("odd", 422, rule=odd))["message"]
    both = {"change": "add", "items": ["a", "b"], "rule": rule}
    await ask(house, "constraints", both, status=422)
    await ask(house, "objectives", {"change": "add", "items": ["a"], "rule": rule}, status=422)
    entries = (await house.http.get("/api/sessions/fleet/timeline")).json()["data"]
    assert entries[-1]["changes"]["constraint_rules"] == {"from": [], "to": [f"at most two: {rule}"]}
    await ask(house, "constraints", {"change": "remove", "items": ["at most two"]})
    assert (await anchor(house))["constraint_rules"] == {}
