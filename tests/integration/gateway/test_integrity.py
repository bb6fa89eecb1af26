"""Verifying and repairing over HTTP, on a real server."""

from __future__ import annotations

from anchorwatch.bus.port import Message
from anchorwatch.journal.commit import Committer
from anchorwatch.journal.quarantine import quarantine
from anchorwatch.journal.sessions import SessionJournal
from anchorwatch.topology.streams import journal_stream
from anchorwatch.topology.subjects import SessionSubjects

from tests.integration.gateway.conftest import House
from tests.integration.gateway.test_reads import worked
from tests.support.sessions import ScriptedSession, now_ms


async def test_verify_finds_forged_and_missing_records(house: House) -> None:
    session = await worked(house, 2)
    path = "/api/sessions/fleet/verify"
    whole = (await house.http.get(path)).json()
    assert whole["findings"] == whole["repairs"] == []
    assert (whole["whole"], whole["runs"], whole["status"]) == (True, True, "idle")

    subjects = SessionSubjects(session.ref)
    page = await house.bus.last(journal_stream(), [subjects.anchor_change])
    altered = page.messages[0].payload.replace(b'"idle"', b'"Idle"', 1)
    forged = await house.bus.publish(Message(subjects.anchor_change, altered))
    (found,) = (await house.http.get(path)).json()["findings"]
    assert (found["sequence"], found["register"], found["trouble"]) == (
        forged.sequence,
        "p.anchor.change",
        "unreadable",
    )
    assert found["consequence"]
    assert found["accepted_at"] is None

    inputs = subjects.everything.removesuffix(">") + "in.*"
    (gone,) = (await house.bus.range(journal_stream(), inputs, 1, limit=1)).messages
    await house.bus.purge(journal_stream(), gone.subject)
    report = (await house.http.get(path)).json()
    assert (gone.sequence, "lost") in [(each["sequence"], each["trouble"]) for each in report["findings"]]
    assert not report["whole"]
    assert not report["runs"]


async def test_verify_of_an_unknown_session_is_not_found(house: House) -> None:
    answer = await house.http.get("/api/sessions/nobody/verify")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def quarantined(house: House, session: ScriptedSession) -> int:
    """A session over a forged log record, as its planner leaves it; the sequence of that."""
    forged = await house.bus.publish(Message(SessionSubjects(session.ref).log, b"noise"))
    committer = Committer(house.bus, journal_stream())
    journal = SessionJournal(house.bus, committer, "planner-1:test")

    async def read(at_least: int) -> None:
        await journal.load(session.ref, at_least)

    written = await quarantine(
        house.bus, committer, session.ref, read, at_ms=now_ms(), writer="planner-1:test"
    )
    assert written == "written"
    return forged.sequence


async def test_quarantined_session_takes_inputs_and_refuses_orders(
    house: House,
) -> None:
    session = await worked(house, 1)
    forged = await quarantined(house, session)

    accepted = await house.http.post("/api/sessions/fleet/inputs", json={"content": "still there?"})
    assert accepted.status_code == 202
    assert accepted.json()["session_status"] == "quarantined"
    for order in ("pause", "resume"):
        answer = await house.http.post(f"/api/sessions/fleet/{order}", json={})
        assert (answer.status_code, answer.json()["code"]) == (409, "session_quarantined")
        assert "anchorwatch repair fleet" in answer.json()["hint"]
    shown = (
        await house.http.get("/api/sessions/fleet", params={"at_least": accepted.json()["sequence"]})
    ).json()
    assert (shown["status"], shown["quarantine"]["sequence"]) == ("quarantined", forged)
    anchor = (await house.http.get("/api/sessions/fleet/anchor")).json()
    assert f"sequence {forged}" in anchor["record"]["reason"]
    timeline = (await house.http.get("/api/sessions/fleet/timeline", params={"limit": "200"})).json()["data"]
    assert [each["sequence"] for each in timeline if each["kind"] == "damaged"] == [forged]

    plan = (await house.http.get("/api/sessions/fleet/repair")).json()
    assert [each["sequence"] for each in plan["remedies"]] == [forged]
    wrong = await house.http.post("/api/sessions/fleet/repair", json={"plan": "0" * 64})
    assert (wrong.status_code, wrong.json()["code"]) == (409, "changed_since")
    body = {"plan": plan["plan"], "note": "it was forged"}
    done = (await house.http.post("/api/sessions/fleet/repair", json=body)).json()
    assert done["replayed"] is False
    again = (await house.http.post("/api/sessions/fleet/repair", json=body)).json()
    assert (again["sequence"], again["replayed"]) == (done["sequence"], True)

    report = (await house.http.get("/api/sessions/fleet/verify")).json()
    assert (report["whole"], report["runs"], report["status"]) == (True, True, "idle")
    assert [each["accepted_at"] for each in report["findings"]] == [done["sequence"]]
    repaired = (await house.http.get("/api/sessions/fleet", params={"at_least": done["sequence"]})).json()
    assert (repaired["status"], repaired["quarantine"]) == ("idle", None)
    nothing = await house.http.get("/api/sessions/fleet/repair")
    assert nothing.status_code == 409


async def test_repair_shows_an_unreadable_input_as_refused(house: House) -> None:
    session = await worked(house, 1)
    forged = await house.bus.publish(Message(SessionSubjects(session.ref).input("k-forged"), b"noise"))
    plan = (await house.http.get("/api/sessions/fleet/repair")).json()
    done = (await house.http.post("/api/sessions/fleet/repair", json={"plan": plan["plan"]})).json()
    query = {"at_least": str(done["sequence"]), "disposition": "refused"}
    (wake,) = (await house.http.get("/api/sessions/fleet/wakes", params=query)).json()["data"]
    assert (wake["sequence"], wake["input_id"], wake["kind"]) == (forged.sequence, "k-forged", "unreadable")
    assert "cannot be read" in wake["reason"]
