"""Verifying over HTTP, on a real server."""

from __future__ import annotations

from anchorwatch.bus.port import Message
from anchorwatch.topology.streams import journal_stream
from anchorwatch.topology.subjects import SessionSubjects

from tests.integration.gateway.conftest import House
from tests.integration.gateway.test_reads import worked


async def test_a_session_is_whole_until_a_record_is_forged_or_gone(house: House) -> None:
    session = await worked(house, 2)
    path = "/api/sessions/fleet/verify"
    whole = (await house.http.get(path)).json()
    assert whole["findings"] == whole["repairs"] == []
    assert (whole["whole"], whole["runs"], whole["status"]) == (True, True, "idle")

    subjects = SessionSubjects(session.ref)
    page = await house.bus.last(journal_stream(), [subjects.anchor])
    altered = page.messages[0].payload.replace(b'"idle"', b'"Idle"', 1)
    forged = await house.bus.publish(Message(subjects.anchor, altered))
    (found,) = (await house.http.get(path)).json()["findings"]
    assert (found["sequence"], found["register"], found["trouble"]) == (
        forged.sequence,
        "p.anchor",
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


async def test_a_session_that_is_not_there_is_not_found(house: House) -> None:
    answer = await house.http.get("/api/sessions/nobody/verify")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
