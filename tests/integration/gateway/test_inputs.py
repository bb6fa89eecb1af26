"""Inputs over HTTP: a receipt for each, for ever."""

from __future__ import annotations

import asyncio

import httpx2
from anchorwatch.codec import canonical_json, decode, sha256_hex
from anchorwatch.core.records import Kind

from tests.integration.gateway.conftest import TOKEN, House, client_of

INPUTS = "/api/sessions/fleet/inputs"


async def say(
    house: House, content: str = "hello", key: str | None = "k-1", **more: object
) -> httpx2.Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    return await house.http.post(INPUTS, json={"content": content, **more}, headers=headers)


async def test_receipt_follows_the_journal_write(house: House) -> None:
    await house.make_session()
    answer = await say(house)
    receipt = answer.json()
    assert answer.status_code == 202
    assert receipt["session"] == "fleet"
    assert receipt["replayed"] is False
    assert receipt["session_status"] == "idle"
    assert receipt["accepted_at"].endswith("+00:00")
    assert answer.headers["Idempotency-Key"] == receipt["idempotency_key"] == "k-1"
    page = await house.bus.last("JOURNAL_0", [f"aw.journal.0.default.fleet.in.{receipt['input_id']}"])
    assert page.messages[0].sequence == receipt["sequence"]


async def test_receipt_is_repeated_after_a_restart(house: House) -> None:
    await house.make_session()
    first = (await say(house)).json()
    again = (await say(house)).json()
    await house.restart_gateway()
    answer = await house.http.post(
        INPUTS, content=b'{ "content" :"hello" }', headers={"Idempotency-Key": "k-1"}
    )
    assert answer.status_code == 202
    for receipt in (again, answer.json()):
        assert receipt == {**first, "replayed": True}
    assert await house.inputs_in_journal() == 1


async def test_key_with_another_body_conflicts_with_the_first(house: House) -> None:
    await house.make_session()
    await say(house)
    answer = await say(house, "something else")
    assert answer.status_code == 409
    assert answer.json()["code"] == "idempotency_conflict"
    assert answer.json()["first_body_sha256"] == sha256_hex(canonical_json({"content": "hello"}))
    trigger = await house.http.post("/api/sessions/fleet/trigger", headers={"Idempotency-Key": "k-1"})
    assert trigger.status_code == 409
    assert await house.inputs_in_journal() == 1


async def test_missing_key_is_made_and_returned(house: House) -> None:
    await house.make_session()
    first, second = (await say(house, key=None)).json(), (await say(house, key=None)).json()
    assert first["idempotency_key"] != second["idempotency_key"]
    replay = await say(house, key=first["idempotency_key"])
    assert replay.json() == {**first, "replayed": True}


async def test_two_hundred_requests_with_one_key_are_one_input(house: House) -> None:
    await house.make_session()
    answers = await asyncio.gather(*(say(house) for _ in range(200)))
    assert {answer.status_code for answer in answers} == {202}
    receipts = [answer.json() for answer in answers]
    assert len({receipt["sequence"] for receipt in receipts}) == 1
    assert [receipt["replayed"] for receipt in receipts].count(False) == 1
    assert await house.inputs_in_journal() == 1


async def test_two_gateways_accept_one_key_once(house: House) -> None:
    await house.make_session()
    first = house.url
    await house.services.start("gateway", "gateway-2", port=0, token=TOKEN)
    assert house.url != first
    async with client_of(first) as one, client_of(house.url) as other:

        async def accepted(client: httpx2.AsyncClient) -> httpx2.Response:
            while True:
                answer = await client.post(
                    "/api/sessions/fleet/inputs",
                    json={"content": "hello"},
                    headers={"Idempotency-Key": "k-1"},
                )
                # A loaded machine may not confirm a write in time; under its key, a client asks again.
                if answer.status_code != 503:
                    return answer

        answers = await asyncio.gather(*(accepted((one, other)[n % 2]) for n in range(1_000)))
    assert {answer.status_code for answer in answers} == {202}
    receipts = [answer.json() for answer in answers]
    assert [receipt.pop("replayed") for receipt in receipts].count(False) == 1
    assert all(receipt == receipts[0] for receipt in receipts)
    assert await house.inputs_in_journal() == 1


async def test_key_is_scoped_to_its_session(house: House) -> None:
    await house.make_session()
    await house.make_session("other")
    first = (await say(house)).json()
    other = await house.http.post(
        "/api/sessions/other/inputs", json={"content": "hello"}, headers={"Idempotency-Key": "k-1"}
    )
    assert other.json()["replayed"] is False
    assert other.json()["input_id"] != first["input_id"]


async def test_paused_session_accepts_inputs(house: House) -> None:
    await house.make_session()
    await house.control(Kind.PAUSED)
    answer = await say(house)
    assert (answer.status_code, answer.json()["session_status"]) == (202, "paused")


async def test_deleted_session_refuses_inputs(house: House) -> None:
    await house.make_session()
    receipt = await say(house)
    assert receipt.status_code == 202
    await house.control(Kind.DELETED)
    for answer in (
        await say(house, key="new"),
        await house.http.post("/api/sessions/fleet/trigger"),
        await house.http.post("/api/sessions", json={"name": "fleet", "agent": "keeper"}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (410, "session_deleted")


async def test_unknown_session_refuses_inputs(house: House) -> None:
    answer = await say(house)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_long_content_becomes_an_artifact(
    house: House,
) -> None:
    await house.make_session()
    content = "Ärger " * 20_000
    first = (await say(house, content)).json()
    assert (await say(house, content)).json() == {**first, "replayed": True}
    assert (await say(house, content + "!")).status_code == 409
    kept = await house.http.get(f"/api/artifacts/{first['artifact_id']}/content")
    assert kept.status_code == 200
    assert kept.content.decode() == content
    assert kept.headers["content-disposition"] == "attachment"
    listed = (await house.http.get("/api/artifacts")).json()["data"]
    assert [each["artifact_id"] for each in listed] == [first["artifact_id"]]
    wake = (await house.http.get("/api/sessions/fleet/wakes?kind=message")).json()["data"][0]
    assert first["artifact_id"] in wake["text"]


async def test_record_of_long_content_has_its_labelled_lines(house: House) -> None:
    await house.make_session()
    rest = "a line of a log\n" * 4_000
    receipt = (await say(house, rest + "CRITICAL: never more than 4 instances\n" + rest)).json()
    page = await house.bus.last("JOURNAL_0", [f"aw.journal.0.default.fleet.in.{receipt['input_id']}"])
    text = decode(page.messages[0].payload).body["text"]
    assert text.startswith("a line of a log\n")
    assert text.splitlines()[-1] == "CRITICAL: never more than 4 instances"
    refused = await say(house, "\n".join(f"CRITICAL: {n} " + "x" * 1_000 for n in range(140)), key="k-2")
    assert (refused.status_code, refused.json()["code"]) == (413, "too_large")
    assert await house.inputs_in_journal() == 1
    assert len((await house.http.get("/api/artifacts")).json()["data"]) == 1


async def test_oversized_body_is_refused_declared_or_not(house: House) -> None:
    await house.make_session()
    content = b'{"content": "' + b"x" * (1024 * 1024) + b'"}'

    async def in_chunks() -> object:
        for start in range(0, len(content), 65536):
            yield content[start : start + 65536]

    for body in (content, in_chunks()):
        answer = await house.http.post(INPUTS, content=body)  # type: ignore[arg-type]  # bytes or a stream of them
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert await house.inputs_in_journal() == 0


BAD_BODIES = [
    (b"", 422),
    (b"{", 400),
    (b"[]", 422),
    (b"null", 422),
    (b'{"content": ""}', 422),
    (b'{"content": "  "}', 422),
    (b'{"content": 3}', 422),
    (b'{"content": "a\\u0000b"}', 422),
    (b'{"content": "\\ud800"}', 422),
    (b'{"content": "\xff"}', 400),
    (b'{"content": "a", "priority": "P9"}', 422),
    (b'{"content": "a", "priority": 0}', 422),
    (b'{"content": "a", "unknown": 1}', 422),
    (b'{"content": "a", "content": "b"}', 422),
    (b'{"content": NaN}', 400),
    (b'{"content": 1e999}', 422),
    (b'{"content": %s}' % (b"9" * 5000), 400),
    (b'{"content": %s}' % (b"9" * 30), 422),
    (b"[" * 100_000, 422),
]


async def test_invalid_body_is_refused_with_a_reason(house: House) -> None:
    await house.make_session()
    for body, status in BAD_BODIES:
        answer = await house.http.post(INPUTS, content=body)
        assert answer.status_code == status, (body[:80], answer.text)
        assert set(answer.json()) >= {"code", "message", "hint"}
    assert await house.inputs_in_journal() == 0


async def test_invalid_key_is_refused(house: House) -> None:
    await house.make_session()
    for key in (b"", b"x" * 256, "é".encode()):
        answer = await house.http.post(INPUTS, json={"content": "a"}, headers=[(b"Idempotency-Key", key)])
        assert answer.status_code == 422, (key, answer.text)
    twice = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    answer = await house.http.post(INPUTS, json={"content": "a"}, headers=twice)
    assert answer.status_code == 400
