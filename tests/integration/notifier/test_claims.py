"""Channels that cannot deduplicate: claimed first, and never sent twice on a guess."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from anchorwatch.bus.port import Bus, Message
from anchorwatch.core.effect.state import EffectState, Outcome, Owner
from anchorwatch.core.records import Kind
from anchorwatch.journal.commit import Committer
from anchorwatch.journal.deliveries import Delivery, DeliveryJournal
from anchorwatch.topology.subjects import SessionSubjects
from anchorwatch_notifier.notices import read_notice

from tests.integration.notifier.conftest import Notifiers, settled
from tests.support.sessions import ScriptedSession, now_ms
from tests.support.waiting import eventually

GONE = Owner("notifier-9", "gone")
FILE = '[[channel]]\nname = "papers"\nkind = "file"\npath = "papers.jsonl"\n'
LOG = '[[channel]]\nname = "log"\nkind = "log"\n'


async def claimed_by_the_dead(bus: Bus, session: ScriptedSession, channel: str) -> tuple[int, str]:
    """A failed turn whose notice somebody claimed, and then died; (sequence, delivery id)."""
    await session.acquire()
    sequence = await session.end("failed")
    page = await bus.range("JOURNAL_0", "aw.journal.0.*.*.p.anchor.change", sequence, limit=1)
    notice = read_notice(page.messages[0])
    assert notice is not None
    id_ = notice.delivery_id(channel)
    journal = DeliveryJournal(bus, Committer(bus, "JOURNAL_0"), "test")
    claim = Delivery(channel, "file", sequence, notice.kinds, notice.title, "claimed", GONE)
    await journal.append(session.ref, id_, EffectState(), claim, now_ms())
    return sequence, id_


def lines(tmp_path: Path) -> list[str]:
    return [json.loads(line)["id"] for line in (tmp_path / "papers.jsonl").read_text().splitlines()]


async def test_file_gets_a_line_for_each_notice(
    bus: Bus, notifiers: Notifiers, session: ScriptedSession, tmp_path: Path
) -> None:
    notifiers.channels(FILE)
    await notifiers.start()
    await session.acquire()
    await settled(bus, await session.end("unresolved", "nobody serves"))
    line = json.loads((tmp_path / "papers.jsonl").read_text())
    assert (line["kinds"][0], line["text"], line["severity"]) == (
        "turn_unresolved",
        "nobody serves",
        "critical",
    )
    (record,) = await session.last("sent.*")
    assert (record.kind, record.body["state"]) == (Kind.DELIVERY, "sent")


@pytest.mark.parametrize("written", [True, False])
async def test_open_claim_is_settled_by_reading_the_file(
    bus: Bus, notifiers: Notifiers, session: ScriptedSession, tmp_path: Path, *, written: bool
) -> None:
    sequence, id_ = await claimed_by_the_dead(bus, session, "papers")
    torn = '{"id": "' + id_
    (tmp_path / "papers.jsonl").write_text(json.dumps({"id": id_}) + "\n" if written else torn)
    notifiers.channels(FILE)
    await notifiers.start()
    await settled(bus, sequence)
    whole = (tmp_path / "papers.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in whole if line != torn] == [id_]
    (record,) = await session.last("sent.*")
    assert record.body["state"] == "sent"


async def test_open_log_claim_is_unknown_and_not_sent_again(
    bus: Bus, notifiers: Notifiers, session: ScriptedSession
) -> None:
    sequence, _ = await claimed_by_the_dead(bus, session, "log")
    notifiers.channels(LOG)
    await notifiers.start()
    await settled(bus, sequence)
    (record,) = await session.last("sent.*")
    assert record.body["state"] == "unknown"


async def test_two_notifiers_write_each_line_once(
    bus: Bus, notifiers: Notifiers, session: ScriptedSession, tmp_path: Path
) -> None:
    notifiers.channels(FILE)
    await notifiers.start("notifier-1")
    last = 0
    for n in range(20):
        await session.acquire(f"turn_{n}")
        last = await session.end("failed")
    await notifiers.start("notifier-2")
    await settled(bus, last)
    assert len(lines(tmp_path)) == len(set(lines(tmp_path))) == 20


async def test_records_that_concern_people_are_all_sent(
    bus: Bus, notifiers: Notifiers, session: ScriptedSession, tmp_path: Path
) -> None:
    notifiers.channels(FILE)
    await notifiers.start()
    await session.acquire()
    unknown, message, plain = await session.commands(*[("fire", {"item": "x"})] * 3)
    notify = {"notify": {"title": "look here", "text": "now", "severity": "critical"}}
    for command, state, data in (
        (unknown, "unknown", {}),
        (message, "succeeded", notify),
        (plain, "succeeded", {}),
    ):
        done = Outcome(command.call, "fire", state, "text", data)  # type: ignore[arg-type]  # one of its states
        await session.record(command, done)
    await settled(bus, await session.control(Kind.QUARANTINED))
    report = [json.loads(line) for line in (tmp_path / "papers.jsonl").read_text().splitlines()]
    assert sorted(line["kinds"][0] for line in report) == ["effect_unknown", "message", "session_quarantined"]


async def test_unwritable_file_is_retried_and_ends_with_one_line(
    bus: Bus, notifiers: Notifiers, session: ScriptedSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anchorwatch_notifier.sender.BACKOFF_S_MIN", 0.1)
    (tmp_path / "papers.jsonl").mkdir()
    notifiers.channels(FILE + LOG)
    await notifiers.start()
    await session.acquire()
    sequence = await session.end("failed")

    async def claimed() -> bool:
        return any(record.kind == Kind.DELIVERY_CLAIMED for record in await session.last("sent.*"))

    await eventually(claimed)
    (tmp_path / "papers.jsonl").rmdir()
    await settled(bus, sequence)
    assert len(lines(tmp_path)) == 1


@pytest.mark.parametrize(("channel", "ends"), [("papers", "sent"), ("log", "unknown")])
async def test_unreadable_delivery_is_settled_as_its_channel_allows(
    bus: Bus, notifiers: Notifiers, session: ScriptedSession, tmp_path: Path, channel: str, ends: str
) -> None:
    """Its record counts as a claim that the journal has lost: a file can be asked, and a log cannot."""
    sequence, id_ = await claimed_by_the_dead(bus, session, channel)
    await bus.publish(Message(SessionSubjects(session.ref).sent(id_), b"noise"))
    notifiers.channels(FILE if channel == "papers" else LOG)
    await notifiers.start()
    await settled(bus, sequence)
    (record,) = await session.last("sent.*")
    assert (record.kind, record.body["state"]) == (Kind.DELIVERY, ends)
    assert channel == "log" or lines(tmp_path) == [id_]
