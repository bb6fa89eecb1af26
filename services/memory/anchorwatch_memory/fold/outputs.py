"""Artifacts and notifications."""

from __future__ import annotations

import sqlite3

from anchorwatch.journal.artifacts import Kept
from anchorwatch.journal.deliveries import read_delivery
from anchorwatch.journal.reading import Opened

from anchorwatch_memory.schema import as_json, insert


def artifact(db: sqlite3.Connection, opened: Opened) -> None:
    """An artifact was stored."""
    ref = opened.register.ref
    kept = Kept.from_body(opened.register.path[1], opened.record.body)
    insert(
        db,
        "artifacts",
        sequence=opened.stored.sequence,
        workspace=ref.workspace,
        session=ref.session,
        artifact_id=kept.artifact_id,
        name=kept.name,
        media_type=kept.media_type,
        size_bytes=kept.size_bytes,
        sha256=kept.sha256,
        run_id=kept.provenance.run_id or None,
        call=kept.provenance.call,
        acting_as=kept.provenance.acting_as,
        derived_from=as_json(list(kept.provenance.derived_from)),
        who=opened.record.writer,
        at_ms=opened.record.at_ms,
    )


def delivery(db: sqlite3.Connection, opened: Opened) -> None:
    """A notification is about to be sent, or has its result."""
    ref, record = opened.register.ref, opened.record
    delivery_id, now = opened.register.path[1], read_delivery(record.body)
    insert(
        db,
        "deliveries",
        sequence=opened.stored.sequence,
        workspace=ref.workspace,
        session=ref.session,
        delivery_id=delivery_id,
        channel=now.channel,
        channel_kind=now.channel_kind,
        record=now.record,
        kinds=as_json(list(now.kinds)),
        title=now.title,
        state=now.state,
        owner=now.owner.instance,
        claims=0,
        error="",
        first_at_ms=record.at_ms,
        last_at_ms=record.at_ms,
        last_sequence=opened.stored.sequence,
    )
    db.execute(
        "UPDATE deliveries SET state = ?, owner = ?, claims = claims + ?, error = ?, last_at_ms = ?,"
        " last_sequence = ? WHERE workspace = ? AND session = ? AND delivery_id = ?",
        (
            now.state,
            now.owner.instance,
            int(now.state == "claimed"),
            now.error,
            record.at_ms,
            opened.stored.sequence,
            ref.workspace,
            ref.session,
            delivery_id,
        ),
    )
